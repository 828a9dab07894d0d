package reply

// SmallInts is smallInts.
const SmallInts = smallInts
