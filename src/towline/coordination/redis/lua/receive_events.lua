return { 'ok', call('XRANGE', EVENTS, '-', '+', 'COUNT', ARGV[3]) }
