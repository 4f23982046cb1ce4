// Stands for the preloaded library: a program that finds this symbol runs with it.
extern "C" void gradwire_test_marker() {}
