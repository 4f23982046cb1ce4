// A job that is killed at any moment: a table of two ranks, which are threads, in a store. It loads the last save of a
// folder, if there is one, and goes on: in round r it sets every row to r, saves, and prints r.
// Usage: saving_job FOLDER STORE
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <vector>

#include "table_support.hpp"
#include "tests/table/saving_job.hpp"

namespace gradwire::test {
namespace {

void run(const std::filesystem::path& folder, const std::string& store) {
  run_tables(2, saving_job_options(store), [&](Table& table) {
    const Ids ids = all_ids(table);
    float round = 0;
    if (std::filesystem::exists(folder / "table-rank-1-of-2.gwtable") ||
        std::filesystem::exists(folder / "table-rank-1-of-2.gwtable.previous")) {
      table.load(folder);
      round = pull(table, {0})[0];
    }
    for (;;) {
      round += 1;
      const std::vector<float> rows(ids.size() * table.options().width, round);
      if (table.rank() == 0) {
        table.assign(ids, rows);
      }
      table.synchronize();
      table.save(folder);
      if (table.rank() == 0) {
        std::printf("%d\n", static_cast<int>(round));
        std::fflush(stdout);
      }
    }
  });
}

}  // namespace
}  // namespace gradwire::test

int main(int argc, char** argv) {
  try {
    if (argc == 3) {
      gradwire::test::run(argv[1], argv[2]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
