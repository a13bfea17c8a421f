return { 'ok', call('HGET', META, 'work_version') }
