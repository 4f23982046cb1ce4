// This program exists only for the precompiled headers of the tests.
int main() { return 0; }
