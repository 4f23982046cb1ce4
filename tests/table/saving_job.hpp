// The table of saving_job.cpp, which the test that kills the job loads.
#pragma once

#include <string>

#include "table_support.hpp"

namespace gradwire::test {

inline TableOptions saving_job_options(const std::string& store) {
  TableOptions options = table_options(6000, 128);
  options.store = store;
  options.memory = 1200 << 10;
  return options;
}

}  // namespace gradwire::test
