local reply = { 'ok' }
for i = 3, #ARGV do
  local row = row_of(ARGV[i])
  if row and row.state == 'q' then
    call('ZREM', QUEUE, row.member)
    call('HDEL', PAYLOAD, row.task)
    row.state = 'a'
    save_row(row)
    reply[#reply + 1] = row.task
  end
end
return reply
