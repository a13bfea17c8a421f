return { 'ok', call('HGET', OUTCOMES, ARGV[3]) }
