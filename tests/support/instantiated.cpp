#include "tests/support/instantiated.hpp"

GRADWIRE_INSTANTIATE()
GRADWIRE_INSTANTIATE_PARSER(, gradwire::test::FileAdapter)
GRADWIRE_INSTANTIATE_PARSER(, gradwire::test::StringAdapter)
