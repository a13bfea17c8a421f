-- Tasks, buckets and waking. An index row is state|bucket|epoch|floor|once|avoid|avoid_until|lost workers|member.
-- state: q(ueued) l(eased) f(inal) a(bsent). A queue member is bucket:rank:critical:place:task, compared as bytes.
local function row_of(task)
  local text = call('HGET', INDEX, task)
  if not text then
    return nil
  end
  local row = { task = task }
  row.state, row.bucket, row.epoch, row.floor, row.once, row.avoid, row.avoid_until, row.lost, row.member =
    string.match(text, '^(%a)|(%d+)|(%d+)|(%d+)|(%d)|([^|]*)|(%d+)|([^|]*)|(.*)$')
  row.epoch, row.floor, row.avoid_until = tonumber(row.epoch), tonumber(row.floor), tonumber(row.avoid_until)
  return row
end

local function save_row(row)
  call('HSET', INDEX, row.task, table.concat({
    row.state, row.bucket, num(row.epoch), num(row.floor), row.once, row.avoid, num(row.avoid_until), row.lost, row.member,
  }, '|'))
end

local function raise_work_version()
  call('HINCRBY', META, 'work_version', 1)
  call('PUBLISH', RUN .. 'wake', '')
end

local function has_bucket(worker, bucket)
  local fits = call('HGET', FITS, worker)
  return fits and string.find(',' .. fits .. ',', ',' .. bucket .. ',', 1, true)
end

-- COORD-R11: wake as many idle workers that fit as there are tasks; when nobody listens, the next one.
local function wake(bucket, count, avoided)
  if count <= 0 then
    return
  end
  local spare = nil
  for _, worker in ipairs(call('ZRANGE', IDLE, 0, -1)) do
    if has_bucket(worker, bucket) then
      if worker == avoided then
        spare = worker
      else
        call('ZREM', IDLE, worker)
        if call('PUBLISH', RUN .. 'wake:' .. worker, '') > 0 then
          count = count - 1
          if count == 0 then
            return
          end
        end
      end
    end
  end
  if spare then
    call('ZREM', IDLE, spare)
    call('PUBLISH', RUN .. 'wake:' .. spare, '')
  end
end

local function put_back(row)
  row.state = 'q'
  call('ZADD', QUEUE, 0, row.member)
  live_on(QUEUE)
  save_row(row)
end
