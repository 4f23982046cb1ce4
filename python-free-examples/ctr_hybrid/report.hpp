// The output of rank 0: a table, and the same as JSON.
#pragma once

#include <string>
#include <vector>

#include "training.hpp"

namespace ctr_hybrid {

struct Report {
  std::vector<Run> runs;
  TrainingOptions options;
  gradwire::TableOptions table;  // of hybrid
  std::string data;              // in words
  int ranks = 1;
};

void print_table(const Report& report);
/// Throws std::runtime_error that names a file which cannot be written, as do the others.
void write_json(const std::string& file, const Report& report);
void write_markdown(const std::string& file, const Report& report);

}  // namespace ctr_hybrid
