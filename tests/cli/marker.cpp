// Stands for the library that is preloaded: a program that finds this symbol runs with it.
extern "C" void gradwire_test_marker() {}
