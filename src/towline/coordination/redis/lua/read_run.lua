return run_state()
