// Runs a scenario of device_job under the drop-in, and reads which calls reached the fake library.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "nccl_preload/run_apart.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

inline constexpr std::uint64_t kLarge = 1 << 15;
// An int8 frame has a header and, for each tile, codes and a scale of 2 bytes per 256 of them.
inline std::string sent_tiles(int tiles) { return "ncclSend:" + std::to_string(32 + tiles * (4096 + 32)); }

// Before the first compressed call the ranks agree on a second communicator.
inline const std::string kSecond = "ncclAllGather:136 ncclCommSplit ncclAllGather:8 ";
inline const std::string kAgreement = "ncclGroupStart ncclAllGather:96 ncclGroupEnd";

struct Seen {
  OutcomeApart outcome;
  std::map<std::string, std::string> lines;  // calls that reached NCCL
  nlohmann::json report;

  [[nodiscard]] std::uint64_t calls(const nlohmann::json& fields) const {
    std::uint64_t sum = 0;
    for (const nlohmann::json& row : report.at("classes")) {
      bool same = true;
      for (const auto& [key, value] : fields.items()) {
        same = same && row.at(key) == value;
      }
      sum += same ? row.at("calls").get<std::uint64_t>() : 0;
    }
    return sum;
  }
};

// All calls are compressed at once.
inline const std::string kAllCalls =
    "GRADWIRE_POLICY=" GRADWIRE_SOURCE_DIR "/python-free-examples/policies/nccl_all_calls.toml";

// The ranks ask each other whether they have memory for calls of a kind, before the first one.
inline const std::string kAsking = "ncclAllGather:8 ";
inline std::string without_asking(std::string calls) {
  const auto found = calls.find(kAsking);
  EXPECT_NE(found, std::string::npos) << calls;
  return found == std::string::npos ? calls : calls.erase(found, kAsking.size());
}

inline const std::string kAutomatic = "[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\nroles = \"all\"\n";

// Runs the job with a named codec, unless the environment says otherwise. Leaves out what makes second communicators,
// unless `second`.
inline Seen run_job(const std::string& scenario, const std::string& environment = kAllCalls, bool second = false) {
  const ScratchFolder scratch;
  const std::string report = (scratch.path() / "report.json").string();
  Seen seen;
  seen.outcome = run_apart(environment + " GRADWIRE_REPORT=" + report + " LD_PRELOAD=" GRADWIRE_DEVICE_DROP_IN,
                           std::string(GRADWIRE_DEVICE_JOB) + " " + scenario);
  EXPECT_EQ(seen.outcome.status, 0) << seen.outcome.err;
  std::istringstream text(seen.outcome.out);
  for (std::string line; std::getline(text, line);) {
    const std::size_t colon = line.find(": ");
    std::string& calls = seen.lines[line.substr(0, colon)];
    std::istringstream words(line.substr(colon + 2));
    for (std::string word; words >> word;) {
      if (word != "ncclCommCount" && word != "ncclCommUserRank") {  // only the first call asks for it
        calls += (calls.empty() ? "" : " ") + word;
      }
    }
    if (const std::size_t at = calls.find(kSecond); at != std::string::npos && !second) {
      calls.erase(at, kSecond.size());
    }
  }
  if (std::filesystem::exists(report + ".nccl")) {
    seen.report = nlohmann::json::parse(read_text(report + ".nccl"));
  }
  return seen;
}

inline std::vector<std::string> names(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

inline std::ptrdiff_t times(const std::string& line, const std::string& name) {
  const std::vector<std::string> all = names(line);
  return std::count(all.begin(), all.end(), name);
}

inline std::string policy_file(const ScratchFolder& scratch, const std::string& text) {
  const std::string file = (scratch.path() / "policy.toml").string();
  std::ofstream(file) << "version = 1\n" << text;
  return "GRADWIRE_POLICY=" + file;
}

}  // namespace gradwire::test
