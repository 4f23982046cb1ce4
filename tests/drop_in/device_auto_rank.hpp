// One rank of the drop-in on devices under codec = "auto", over host memory and with scripted times.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {

inline constexpr std::uint64_t kAutoElements = 20000;

inline Configuration automatic(const std::string& allow) {
  Configuration configuration;
  configuration.mode = Mode::compressing;
  configuration.planner = plan::CallPlanner(
      Policy::parse("version = 1\n[defaults]\ncodec = \"auto\"\nroles = \"all\"\nallow = " + allow + "\n"),
      plan::AutoFeedback::where_allowed);
  configuration.timeout = std::chrono::seconds(20);
  return configuration;
}

// One rank, whose steps are a small call and two large ones.
struct AutoRank {
  /// `in_node`: the windows of the rank's device.
  AutoRank(const Configuration& configuration, const std::shared_ptr<Transport>& transport,
           test::HostWindows in_node = {})
      : place(configuration, ledger, transport, 1 + static_cast<std::uint64_t>(transport->rank())),
        large(4, std::vector<float>(kAutoElements)) {
    place.link->host.in_node = std::move(in_node);
    nccl.links.push_back(place.link);
    reach_agreement(std::vector{place.reducer}, nccl);
    nccl.log.clear();
  }

  [[nodiscard]] ScriptedClock& clock() const { return place.link->times; }
  DeviceCall prepare(std::size_t which) {
    std::vector<float>& values = large[which];
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 97) / 97 + static_cast<float>(place.rank) / 7;
    }
    place.link->host.call("what computes the input", {{values.data(), values.size() * sizeof(float), true}}, [] {});
    return call_of(place, {.count = kAutoElements}, values.data(), values.data(), nccl);
  }
  void finish(std::size_t which) {
    place.link->host.call("what reads the output", {{large[which].data(), kAutoElements * sizeof(float), false}},
                          [] {});
    place.link->host.synchronize();
  }
  // Makes a call and returns what became of it: "passed", "compressed", "trial" with the job's sum by the library,
  // "trial of the library".
  std::string call(std::size_t which) {
    nccl.log.clear();
    const std::uint64_t led = place.link->host.led;
    const DeviceCall made = prepare(which);
    code = issue(std::vector{made}, nccl);
    finish(which);
    const bool ours = place.link->host.led > led;
    ++calls;
    if (nccl.log.empty()) {
      return "compressed";
    }
    return !ours ? "passed" : nccl.log.front();
  }
  // Makes calls; returns how many became what.
  std::map<std::string, int> run(int count) {
    std::map<std::string, int> became;
    for (int i = 0; i < count; ++i) {
      ++became[call(static_cast<std::size_t>(i % 2))];
      EXPECT_EQ(code, 0);
    }
    return became;
  }
  // The largest error of the latest result, given that it is the sum.
  [[nodiscard]] double error(std::size_t which) const {
    double largest = 0;
    for (std::size_t i = 0; i < kAutoElements; ++i) {
      const int world = place.world;
      const double sum = static_cast<double>(world) * static_cast<float>(i % 97) / 97 + world * (world - 1) / 2.0 / 7;
      largest = std::max(largest, std::abs(large[which][i] - sum));
    }
    return largest;
  }
  // Whether the job's buffer is as it was: the calls of this library compute nothing.
  [[nodiscard]] bool untouched(std::size_t which) const {
    return large[which][96] == 96.0F / 97 + static_cast<float>(place.rank) / 7;
  }
  [[nodiscard]] std::uint64_t passed(Reason reason) const { return test::calls_for(ledger, reason); }

  Ledger ledger;
  HostLibrary nccl;
  Place place;
  std::vector<std::vector<float>> large;
  int calls = 0;
  int code = 0;
};

}  // namespace gradwire::drop_in
