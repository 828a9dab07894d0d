package reply

// SmallInts shows the bound to the tests.
const SmallInts = smallInts
