if M.completed ~= '1' then
  call('HSET', META, 'completed', '1')
  call('PUBLISH', RUN .. 'signal', '')
  raise_work_version()
end
return { 'ok' }
