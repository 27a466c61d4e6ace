"""What the tests share: servers, worker processes, probe logs, and waiting for conditions."""
