return store_events(3)
