"""The handlers of an app: functions that process records, with concurrency, order and retries."""
