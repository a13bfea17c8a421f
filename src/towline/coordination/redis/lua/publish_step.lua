-- COORD-C51 to C54, R12: refuse or store, the events first. `by_lease`: a worker's outcome, else the master's.
local function publish(by_lease, task, epoch, id, state, json, events_at)
  if events_at then
    store_events(events_at)
  end
  epoch = tonumber(epoch)
  local stored = call('HGET', OUTCOMES, task)
  if stored then
    local final, final_epoch, final_worker = string.match(stored, '^([^|]*)|(%d+)|([^|]*)|')
    -- The state counts too: a lost at-most-once task failed under its last holder's name (COORD-C45, C54).
    local same = final == state and tonumber(final_epoch) == epoch and final_worker == id
    return { 'ok', same and '1' or '0', final, final_epoch }
  end
  local row = row_of(task)
  if by_lease == '1' then
    local accepted = false
    if row and (state == 'succeeded' or state == 'skipped') then
      accepted = epoch >= 1 and epoch <= math.max(row.epoch, row.floor)
    elseif row then
      local lease = lease_of(task)
      accepted = lease and lease.epoch == epoch and lease.worker == id
    end
    if not accepted then
      return { 'ok', '0', '', '' }
    end
  end
  settle(task, row, state, epoch, id, json)
  return { 'ok', '1', state, num(epoch) }
end
