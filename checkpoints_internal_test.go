package epl

// WaitForSave waits for what OnStep has begun to save.
func WaitForSave(c *Checkpoint) { c.wait() }
