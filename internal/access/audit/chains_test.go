package audit_test

// chains are those of TestLines, computed by another program.
var chains = [4]string{
	"bba9d1515f8da12ce1a11a7e3c1a866466d1a522817f1b906618803b9bfb0d6d",
	"6c11a632222c3a35e7b1ff562d32f1159a53389c5499c0049088cb33a5022003",
	"f7bb8350da19354646fb01dd8b2508d1009e0c297389065c4b8489740ad5fcbc",
	"4216d43446b3bfe255d7d815ebdbd7502d9719d82bebd7e49cea718f5876e02e",
}
