call('XTRIM', FEED, 'MINID', num(tonumber(ARGV[3]) + 1) .. '-0')
return { 'ok' }
