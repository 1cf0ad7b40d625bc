package hlo

// Refused are the operations without a text, with the reason.
var Refused = refused
