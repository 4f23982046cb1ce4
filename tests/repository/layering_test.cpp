// Tests that every #include of the libraries obeys the table of layers, that the table covers every folder, and that
// the check finds violations.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

TEST(Layering, TreeObeysTheTable) {
  const std::vector<std::string> files = library_files(kRepository);
  ASSERT_GT(files.size(), 20U) << "the search of the tree finds too few files";
  for (const std::string& file : files) {
    for (const std::string& violation : find_violations(file, read_file(kRepository / file))) {
      ADD_FAILURE() << violation;
    }
  }
}

TEST(Layering, FoldersOfTheSessionObeyTheirTable) {
  std::set<std::string> folders;
  for (const std::string& file : library_files(kRepository)) {
    if (file.starts_with("src/session/")) {
      folders.insert(file.substr(12, file.find('/', 12) - 12));
      for (const std::string& violation : find_session_violations(file, read_file(kRepository / file))) {
        ADD_FAILURE() << violation;
      }
    }
  }
  std::set<std::string> rows;
  for (const Layer& row : kSessionFolders) {
    rows.insert(std::string(row.name));
    for (const std::string_view below : row.below) {
      EXPECT_TRUE(rows.contains(std::string(below))) << row.name << " stands on " << below << ", which comes later";
    }
  }
  EXPECT_EQ(folders, rows);
}

// Users copy an example, so it includes only its own headers and the installed ones.
TEST(Layering, ExamplesIncludeWhatIsInstalled) {
  const std::regex quoted("#\\s*include\\s*\"([^\"]+)\"");
  int seen = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRepository / "python-free-examples")) {
    const std::string extension = entry.path().extension().string();
    if (!entry.is_regular_file() || !(extension.starts_with(".c") || extension.starts_with(".h"))) {
      continue;
    }
    const std::string text = read_file(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), quoted), end; match != end; ++match, ++seen) {
      const std::string header = (*match)[1];
      EXPECT_TRUE((header.find("..") == std::string::npos && exists(entry.path().parent_path() / header)) ||
                  (header.starts_with("gradwire/") && exists(kRepository / "include" / header)))
          << entry.path() << ": " << header << " is neither the example's own nor installed";
    }
  }
  EXPECT_GT(seen, 20);
}

TEST(Layering, FabricatedViolationsAreFound) {
  struct Case {
    std::string path, line, expected;
  };
  const std::vector<Case> cases = {
      {"src/base/error.cpp", "#include \"wire/frame.hpp\"", "base may not include wire"},
      {"src/transport/inproc.cpp", "#include \"codec/codec.hpp\"", "transport may not include codec"},
      {"src/exchange/native.cpp", "#include <mpi.h>", "headers of MPI"},
      {"src/exchange/native.cpp", "  #  include \"plan/plan.hpp\"  // why", "exchange may not include plan"},
      {"src/transport/inproc.cpp", "#include \"gradwire/mpi.hpp\"", "transport may not include session"},
      {"src/session/engine/engine.cpp", "#include \"elastic/elastic.hpp\"", "session may not include elastic"},
      {"src/codec/codec.cpp", "#include \"gradwire/transport.hpp\"", "codec may not include transport"},
      {"src/session/calls/session.cpp", "#include <cuda_runtime.h>", "headers of CUDA"},
      {"src/plan/plan.cpp", "#include <nccl.h>", "headers of NCCL"},
      {"src/session/calls/session.cpp", "#include <torch/torch.h>", "headers of Torch"},
      {"src/base/log.cpp", "#include <spdlog/spdlog.h>", "headers of spdlog"},
      {"src/plan/plan.cpp", "#include \"plan.hpp\"", "neither a module"},
      {"src/plan/plan.cpp", "#include <boost/any.hpp>", "neither a module"},
      {"include/gradwire/session.hpp", "#include \"session/state/state_file.hpp\"", "public headers only"},
      {"include/gradwire/policy.hpp", "#include \"gradwire/session.hpp\"", "policy may not include session"},
      {"include/gradwire/session.hpp", "#include <mpi.h>", "headers of MPI"},
      {"src/extra/extra.cpp", "#include <vector>", "no row of the table"},
  };
  for (const Case& c : cases) {
    const auto violations = find_violations(c.path, "#include <vector>\n" + c.line + "\n");
    ASSERT_EQ(violations.size(), 1U) << c.path << ": " << c.line;
    EXPECT_NE(violations[0].find(c.expected), std::string::npos) << violations[0];
  }
}

TEST(Layering, FabricatedViolationsInsideTheSessionAreFound) {
  struct Case {
    std::string path, include, expected;
  };
  const std::vector<Case> cases = {
      {"src/session/engine/core.cpp", "session/parts/scales/scale_comparison.hpp", "engine may not include parts"},
      {"src/session/parts/scales/scale_comparison.cpp", "session/engine/engine.hpp", "parts may not include engine"},
      {"src/session/parts/scales/scale_comparison.cpp", "session/parts/tables/session_tables.hpp",
       "part scales may not include part tables"},
      {"src/session/host/bucket_runner.cpp", "session/engine/progress.hpp", "host may not include engine"},
      {"src/session/step/step.cpp", "session/runner/runner.hpp", "step may not include runner"},
      {"src/session/step.cpp", "vector", "no row of the table"},
      {"src/session/extra/extra.cpp", "vector", "no row of the table"},
  };
  for (const Case& c : cases) {
    const auto violations = find_session_violations(c.path, "#include \"" + c.include + "\"\n");
    ASSERT_EQ(violations.size(), 1U) << c.path << ": " << c.include;
    EXPECT_NE(violations[0].find(c.expected), std::string::npos) << violations[0];
  }
  EXPECT_TRUE(
      find_session_violations("src/session/parts/scales/scale_comparison.cpp",
                              "#include \"session/parts/scales/scale_comparison.hpp\"\n#include \"plan/plan.hpp\"\n")
          .empty());
}

TEST(Layering, WhatIsAllowedPasses) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"src/transport/mpi_transport.cpp", "#include <mpi.h>"},
      {"include/gradwire/mpi.hpp", "#include <mpi.h>"},
      {"include/gradwire/torch.hpp", "#include <torch/torch.h>"},
      {"src/session/calls/session.cpp", "#include \"base/units.hpp\""},
      {"src/elastic/elastic_session.cpp", "#include \"session/engine/engine.hpp\""},
      {"src/exchange/native.cpp", "#include \"gradwire/transport.hpp\""},
      {"kernels/int8.cuh", "#include <cuda_runtime.h>"},
  };
  for (const auto& [path, line] : cases) {
    const auto violations = find_violations(path, line);
    EXPECT_TRUE(violations.empty()) << violations[0];
  }
}

// Elasticity is a wrapper around ordinary engines (docs/decisions/session.md, D180).
TEST(Layering, TheEngineKnowsNothingOfElasticity) {
  std::size_t files = 0;
  for (const std::string& file : library_files(kRepository)) {
    if (file.starts_with("src/session/engine/") || file.starts_with("src/session/step/") ||
        file.starts_with("src/session/part/")) {
      ++files;
      const std::string text = read_file(kRepository / file);
      EXPECT_EQ(text.find("lastic"), std::string::npos) << file;
      EXPECT_EQ(text.find("Processes"), std::string::npos) << file;
    }
  }
  EXPECT_GE(files, 30U);
}

// Only one place decides whether the name is a directory or a file.
TEST(Layering, GradwireReportIsReadInOnePlace) {
  std::vector<std::string> readers;
  for (const std::string& file : library_files(kRepository)) {
    const std::string text = read_file(kRepository / file);
    const bool reads = std::regex_search(text, std::regex(R"((environment|getenv|look)\(\s*"GRADWIRE_REPORT)"));
    if (reads || (text.find("report_place(") != std::string::npos && file != "src/cli/report_file.cpp")) {
      readers.push_back(file);
    }
  }
  EXPECT_EQ(readers, (std::vector<std::string>{"src/base/report_place.cpp", "src/base/report_place.hpp"}))
      << "ask report_place_of_environment(); only `gradwire run --report` has a name of its own";
}

// clang's thread safety analysis does not follow the mutexes and locks of libstdc++ (docs/style.md, "Locks").
TEST(Layering, LocksAreThoseThatTheAnalysisFollows) {
  const std::map<std::string, std::string> exceptions = {
      {"src/base/mutex.hpp", "wraps them"},
      {"include/gradwire/processes.hpp", "users see it, and base/mutex.hpp is not installed"},
      {"src/watch/served_totals.hpp", "waits for a lock for a time, by std::timed_mutex, which nothing else needs"}};
  const std::regex outside(
      R"(std::((\w+_)?mutex|(lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable)\b))");
  std::set<std::string> found;
  for (const std::string& file : library_files(kRepository)) {
    std::istringstream text(read_file(kRepository / file));
    int number = 0;
    for (std::string line; std::getline(text, line);) {
      ++number;
      std::smatch name;
      if (std::regex_search(line, name, outside) && line.find("//") > static_cast<std::size_t>(name.position())) {
        found.insert(file);
        EXPECT_TRUE(exceptions.contains(file))
            << file << ":" << number << ": " << name[0] << "; use Mutex, MutexLock and CondVar of base/mutex.hpp";
      }
    }
  }
  for (const auto& [file, reason] : exceptions) {
    EXPECT_TRUE(found.contains(file)) << file << " is no exception any more: " << reason;
  }
}

TEST(Layering, TheTopLevelHoldsWhatItShould) {
  const std::set<std::string> allowed = {".ci",
                                         ".clang-format",
                                         ".clang-tidy",
                                         ".gitignore",
                                         "ARCHITECTURE.md",
                                         "CHANGELOG.md",
                                         "CITATION.cff",
                                         "CONTRIBUTING.md",
                                         "CMakeLists.txt",
                                         "CMakePresets.json",
                                         "LICENSE",
                                         "README.md",
                                         "SECURITY.md",
                                         "bench",
                                         "cmake",
                                         "docs",
                                         "include",
                                         "kernels",
                                         "plugins",
                                         "python-free-examples",
                                         "run",
                                         "src",
                                         "tests"};
  const std::set<std::string> local = {".git", ".cache", "build", "results",
                                       "compile_commands.json"};  // ignored by git
  for (const auto& entry : std::filesystem::directory_iterator(kRepository)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(allowed.contains(name) || local.contains(name) || name.ends_with(".swp"))
        << name << " does not belong at the top level; if it does, add it here and to ARCHITECTURE.md";
  }
  for (const char* name :
       {"LICENSE", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "run", ".ci/run", "docs/README.md"}) {
    EXPECT_TRUE(std::filesystem::exists(kRepository / name)) << name << " is missing";
  }
}

}  // namespace
}  // namespace gradwire::repository
