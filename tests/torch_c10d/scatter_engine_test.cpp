// Tests FSDP's reduce-scatter without Torch: over a simulated device it has the bytes of the host, and both are near
// the exact sum.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plugins/torch_c10d/scatter_device.hpp"
#include "tests/exchange/inputs.hpp"
#include "tests/support/host_device.hpp"
#include "tests/support/ranks.hpp"
#include "tests/torch_c10d/thread_store.hpp"

namespace gradwire::torch_c10d {
namespace {

constexpr std::uint64_t kSegment = 12'000 + 5;
constexpr int kRanks = 3;

double input_of(int rank, std::uint64_t i) { return std::sin(0.01 * static_cast<double>(i) + rank); }

struct Given {
  DType dtype = DType::f32;
  Reduction reduction = Reduction::sum;
  double factor = 1;
  bool in_place = false;
  std::string codec = "int8";
};

// Calls reduce(call) twice on other values, and returns the second result.
template <class Reduce>
std::vector<double> reduce_twice(const Given& given, int rank, Reduce&& reduce) {
  std::vector<double> result;
  for (const double scale : {2.0, 1.0}) {
    std::vector<double> values(kSegment * kRanks);
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      values[i] = scale * input_of(rank, i);
    }
    test::Values input(given.dtype, values);
    test::Values output(given.dtype, kSegment);
    View to = output.view();
    if (given.in_place) {
      const std::uint64_t own = static_cast<std::uint64_t>(rank) * kSegment * element_bytes(given.dtype);
      to = {static_cast<std::byte*>(input.view().data) + own, kSegment, given.dtype};
    }
    reduce({.input = input.view(), .output = to, .reduction = given.reduction, .factor = given.factor});
    if (given.in_place) {
      const auto first = static_cast<std::ptrdiff_t>(static_cast<std::uint64_t>(rank) * kSegment);
      const std::vector<double> all = input.doubles();
      result.assign(all.begin() + first, all.begin() + first + static_cast<std::ptrdiff_t>(kSegment));
    } else {
      result = output.doubles();
    }
  }
  return result;
}

void expect_near_the_sum(const Given& given, int rank, const std::vector<double>& result) {
  const double scale = given.factor / (given.reduction == Reduction::mean ? kRanks : 1);
  const double bound = given.codec == "fp8" ? 0.15 : 0.04;
  for (std::uint64_t i = 0; i < kSegment; i += 7) {
    double exact = 0;
    for (int other = 0; other < kRanks; ++other) {
      exact += scale * input_of(other, static_cast<std::uint64_t>(rank) * kSegment + i);
    }
    ASSERT_NEAR(result[i], exact, bound * scale) << "rank " << rank << ", element " << i;
  }
}

TEST(ScatterEngine, TheDeviceHasTheBytesOfTheHost) {
  for (const Given& given :
       {Given{}, Given{.dtype = DType::bf16, .reduction = Reduction::mean}, Given{.in_place = true},
        Given{.dtype = DType::f16, .codec = "fp8"}, Given{.codec = "exact"}, Given{.factor = 0.25}}) {
    SCOPED_TRACE(given.codec + " " + std::string(to_string(given.dtype)));
    std::vector<std::vector<double>> on_device(kRanks);
    test::run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      auto made = std::make_unique<test::HostDevice>(transport);
      test::HostDevice& device = *made;
      DeviceScatter scatter(std::move(made), CodecSpec::parse(given.codec));
      on_device[static_cast<std::size_t>(rank)] = reduce_twice(given, rank, [&](const ScatterCall& call) {
        const std::uint64_t each = element_bytes(given.dtype);
        device.call("what computes the input", {{call.input.data, call.input.count * each, true}}, [] {});
        scatter.reduce_scatter(call);
        device.call("what reads the output", {{call.output.data, call.output.count * each, false}}, [] {});
        device.synchronize();
      });
      expect_near_the_sum(given, rank, on_device[static_cast<std::size_t>(rank)]);
    });
    if (given.factor != 1) {
      continue;  // on a host Torch multiplies before
    }
    test::ThreadStore store;
    test::run_ranks(kRanks, [&](const std::shared_ptr<Transport>& transport) {
      const int rank = transport->rank();
      const auto engine = make_host_scatter_engine({.rank = rank,
                                                    .world_size = kRanks,
                                                    .codec = CodecSpec::parse(given.codec),
                                                    .timeout = std::chrono::seconds(60),
                                                    .store = store.rendezvous()});
      const std::vector<double> result =
          reduce_twice(given, rank, [&](const ScatterCall& call) { engine->reduce_scatter(call); });
      EXPECT_EQ(result, on_device[static_cast<std::size_t>(rank)]);
    });
  }
}

}  // namespace
}  // namespace gradwire::torch_c10d
