return { 'ok', call('XRANGE', FEED, '(' .. ARGV[3] .. '-0', '+', 'COUNT', ARGV[4]) }
