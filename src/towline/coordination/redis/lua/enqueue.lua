-- Per task 9 arguments from ARGV[3]: task, requirement, always-run, clause count, at-most-once, epoch floor, order, inputs,
-- JSON.
local BUCKET_LIMIT = 256

local function bucket_number(requirement, always, clause_count)
  local key = requirement .. (always == '1' and '!' or '')
  local known = call('HGET', BUCKETS, key)
  if known then
    return known
  end
  local number = num(call('HINCRBY', META, 'bucket_count', 1) - 1)
  local live = 0
  for _, id in ipairs(call('HKEYS', WORKERS)) do
    local worker = worker_of(id)
    if fits_clauses(requirement, worker.capabilities) then
      local fits = call('HGET', FITS, id)
      call('HSET', FITS, id, (fits and fits ~= '') and fits .. ',' .. number or number)
      if worker.counted == '1' then
        live = live + 1
      end
    end
  end
  call('HSET', BUCKETS, key, number, '#' .. number, table.concat({ always, clause_count, requirement }, '|'),
    '@' .. number, live)
  return number
end

local seen, count = {}, tonumber(M.bucket_count)
for i = 3, #ARGV, 9 do
  local key = ARGV[i + 1] .. (ARGV[i + 2] == '1' and '!' or '')
  if not seen[key] and call('HEXISTS', BUCKETS, key) == 0 then
    count = count + 1
  end
  seen[key] = true
end
if count > BUCKET_LIMIT then
  return { 'too_many_requirements', num(count), num(BUCKET_LIMIT) }
end

local reply, added, buckets, inputs = { 'ok' }, 0, {}, {}
for i = 3, #ARGV, 9 do
  local task, requirement, always, clause_count, once, floor, place, needs, json = unpack(ARGV, i, i + 8)
  local row = row_of(task)
  if call('HEXISTS', OUTCOMES, task) == 1 or (row and row.state ~= 'a') then
    reply[#reply + 1] = '0'
  else
    local number = bucket_number(requirement, always, clause_count)
    local seq = call('HINCRBY', META, 'next_place', 1) - 1
    row = row or { task = task, epoch = 0, avoid = '', avoid_until = 0, lost = '' }
    row.bucket, row.once, row.floor = number, once, tonumber(floor)
    row.member = string.format('%04d:%s:%014.0f:%s', tonumber(number), place, seq, task)
    call('HSET', PAYLOAD, task, json)
    put_back(row)
    reply[#reply + 1] = '1'
    added = added + 1
    buckets[number] = true
    inputs[task] = needs
  end
end
live_on(PAYLOAD, INDEX, BUCKETS, FITS)
if added > 0 then
  raise_work_version()
  serve(buckets, added, inputs)
end
return reply
