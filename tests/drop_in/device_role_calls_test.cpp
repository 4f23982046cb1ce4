// Tests which calls on device memory are compressed by their role, and how: over ranks that are threads, and a library
// that only records what it is given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/drop_in/device_harness.hpp"

namespace gradwire::drop_in {
namespace {

using test::run_ranks;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kRoleCount = 20000;
constexpr Function kSegments = Function::nccl_reduce_scatter;

// Holds one rank that has agreed with the others.
struct RoleRank {
  RoleRank(const Configuration& configuration, const std::shared_ptr<Transport>& transport, std::string name = {},
           std::size_t limit = ~std::size_t{0})
      : rank(transport->rank()),
        place(configuration, ledger, transport, 1 + static_cast<std::uint64_t>(rank), limit, std::move(name)) {
    nccl.links.push_back(place.link);
    reach_agreement(std::vector{place.reducer}, nccl);
    nccl.log.clear();
  }

  // Returns "c" if the call was compressed, "-" if it was passed, "!" if it failed.
  std::string reduce(const CallOf& what, const void* send, void* receive) {
    nccl.log.clear();
    const int code = issue(std::vector{call_of(place, what, send, receive, nccl)}, nccl);
    if (!what.captured) {
      place.link->host.synchronize();
    }
    return code != 0 ? "!" : nccl.log.empty() ? "c" : "-";
  }
  std::string reduce(std::vector<float>& values, CallOf what = {}) {
    what.count = values.size();
    return reduce(what, values.data(), values.data());
  }
  [[nodiscard]] std::uint64_t calls(Reason reason) const { return test::calls_for(ledger, reason); }

  int rank;
  Ledger ledger;
  HostLibrary nccl;
  Place place;
};

// Runs `body` on each rank, with a policy under which calls wait for their roles.
void run_roles(int ranks, const std::string& policy, const std::function<void(RoleRank&)>& body) {
  const Configuration configuration = configuration_with_roles(policy);
  run_ranks(ranks, [&](const std::shared_ptr<Transport>& transport) {
    RoleRank rank(configuration, transport);
    body(rank);
    EXPECT_THAT(rank.place.reducer->failure(), IsEmpty());
  });
}

// Returns buffers that differ in size, as DDP's buckets do.
std::vector<std::vector<float>> buffers(std::size_t count) {
  std::vector<std::vector<float>> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(kRoleCount + i, 0.5F);
  }
  return made;
}

// Mutation tried: open roles are compressed.
TEST(DeviceRoleCalls, BucketsOfDdpAreCompressedOnceTheyAreKnown) {
  run_roles(2, "", [](RoleRank& rank) {
    auto buckets = buffers(4);
    std::string seen;
    for (int step = 0; step < 40; ++step) {
      for (auto& bucket : buckets) {
        seen += rank.reduce(bucket);
      }
    }
    EXPECT_EQ(seen, std::string(127, '-') + std::string(33, 'c')) << "the votes of call 64 count from call 128 on";
    EXPECT_EQ(rank.calls(Reason::role_open), 127U);
    EXPECT_EQ(rank.place.link->port.begun, 1) << "no exchange once all roles are known";
  });
}

// Mutation tried: activations are compressed beside gradients.
TEST(DeviceRoleCalls, NoBitOfAnActivationChanges) {
  run_roles(2, "", [](RoleRank& rank) {
    auto buckets = buffers(3);
    auto repeated = buffers(1);
    std::vector<std::vector<float>> all;  // kept, so that no address comes again
    std::string seen;
    for (int step = 0; step < 50; ++step) {
      seen.clear();
      for (int layer = 0; layer < 2; ++layer) {
        seen += rank.reduce(repeated[0], {});
        all.emplace_back(kRoleCount, 0.1F + static_cast<float>(step));
        seen += rank.reduce(all.back());
        EXPECT_EQ(all.back(), std::vector<float>(kRoleCount, 0.1F + static_cast<float>(step)));
        EXPECT_EQ(repeated[0], std::vector<float>(kRoleCount, 0.5F)) << "the library decides this";
      }
      for (auto& bucket : buckets) {
        seen += rank.reduce(bucket);
      }
      rank.place.reducer->note_other_call();  // the loss
    }
    EXPECT_EQ(seen, "----ccc");
    EXPECT_GT(rank.calls(Reason::no_gradient), 0U);
    rank.place.link->host.begin_capture();
    EXPECT_EQ(rank.reduce(repeated[0], {.captured = true}), "-") << "buckets of its size are gradients, it is none";
    static_cast<void>(rank.place.link->host.end_capture());
  });
}

TEST(DeviceRoleCalls, OneRankThatDisagreesKeepsTheCallExactOnAll) {
  run_roles(3, "", [](RoleRank& rank) {
    auto buckets = buffers(4);
    std::vector<std::vector<float>> all;
    std::string seen;
    for (int step = 0; step < 40; ++step) {
      seen.clear();
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        if (i == 1 && rank.rank == 2) {
          all.emplace_back(kRoleCount);
        }
        seen += rank.reduce(i == 1 && rank.rank == 2 ? all.back() : buckets[i]);
      }
    }
    EXPECT_EQ(seen, "c-cc");
  });
}

// Mutation tried: the residuals stay.
TEST(DeviceRoleCalls, ACallThatLosesItsRolePassesAndItsResidualsGo) {
  run_roles(2, "[defaults]\ncodec = \"int4\"\n", [](RoleRank& rank) {
    auto buckets = buffers(3);
    std::vector<std::vector<float>> all;  // kept, so that no address comes again
    const auto step = [&](bool moves) {
      std::string seen;
      for (auto& bucket : buckets) {
        if (moves && &bucket == &buckets[1] && rank.rank == 1) {
          all.push_back(std::move(bucket));
          bucket.assign(all.back().size(), 0.5F);
        }
        seen += rank.reduce(bucket);
      }
      return seen;
    };
    std::string seen;
    for (int i = 0; i < 60; ++i) {
      seen = step(false);
    }
    EXPECT_EQ(seen, "ccc");
    const std::uint64_t residuals = rank.place.reducer->residual_bytes();
    EXPECT_EQ(step(true), "ccc") << "until the ranks vote";
    for (int i = 0; i < 400; ++i) {
      seen = step(false);
    }
    EXPECT_EQ(seen, "c-c");
    EXPECT_GE(rank.calls(Reason::no_gradient), 1U);
    const std::uint64_t left = rank.place.reducer->residual_bytes();
    EXPECT_GT(left, 0U);
    EXPECT_LE(left, residuals - 4 * kRoleCount);
  });
}

// Mutation tried: the gate gets calls without a role.
TEST(DeviceRoleCalls, NoActivationIsTriedForAuto) {
  run_roles(2, "[defaults]\ncodec = \"auto\"\nallow = [\"int8\"]\n", [](RoleRank& rank) {
    auto repeated = buffers(1);
    auto buckets = buffers(2);
    for (int step = 0; step < 300; ++step) {
      rank.place.reducer->note_other_call();  // the loss
      for (int layer = 0; layer < 2; ++layer) {
        EXPECT_EQ(rank.reduce(repeated[0]), "-");
        EXPECT_EQ(repeated[0], std::vector<float>(kRoleCount, 0.5F));
      }
      for (auto& bucket : buckets) {
        rank.reduce(bucket);
      }
    }
    EXPECT_EQ(rank.calls(Reason::role_open) + rank.calls(Reason::no_gradient) + rank.calls(Reason::measuring) +
                  rank.calls(Reason::no_faster) + rank.calls(Reason::none),
              1200U);
    EXPECT_GE(rank.calls(Reason::role_open) + rank.calls(Reason::no_gradient), 600U);
    EXPECT_LE(rank.calls(Reason::measuring), 600U) << "buckets alone";
    EXPECT_GT(rank.calls(Reason::measuring), 0U);
  });
}

// Mutation tried: ranks vote although the policy decides at once.
TEST(DeviceRoleCalls, NothingIsAskedWherePoliciesDecide) {
  for (const char* policy :
       {"[defaults]\nroles = \"all\"\n", "[defaults]\ncodec = \"exact\"\n", "[[rule]]\nmin_bytes = 1\n"}) {
    run_roles(2, policy, [](RoleRank& rank) {
      auto buckets = buffers(4);
      for (int call = 0; call < 140; ++call) {
        rank.reduce(buckets[static_cast<std::size_t>(call) % buckets.size()]);
      }
      EXPECT_EQ(rank.place.link->port.begun, 0);
    });
  }
}

// Calls of one group share the exchange behind it.
TEST(DeviceRoleCalls, RolesAreFoundInGroups) {
  run_roles(2, "", [](RoleRank& rank) {
    auto buckets = buffers(4);
    std::size_t passed = 0;
    for (int step = 0; step < 40; ++step) {
      std::vector<DeviceCall> calls;
      for (auto& bucket : buckets) {
        calls.push_back(call_of(rank.place, {.count = bucket.size()}, bucket.data(), bucket.data(), rank.nccl));
      }
      rank.nccl.log.clear();
      EXPECT_EQ(issue(calls, rank.nccl), 0);
      rank.place.link->host.synchronize();
      passed = static_cast<std::size_t>(std::count(rank.nccl.log.begin(), rank.nccl.log.end(), "forward"));
    }
    EXPECT_EQ(passed, 0U);
  });
}

TEST(DeviceRoleCalls, RulesDecideAtOnce) {
  const auto first_of = [](const std::string& policy, const CallOf& what, const std::string& name) {
    const Configuration configuration = configuration_with_roles(policy);
    std::string seen;
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      RoleRank rank(configuration, transport, name == "differs" ? "dp" + std::to_string(transport->rank()) : name);
      std::vector<float> values(2 * kRoleCount, 1.0F);
      const std::string mine = rank.reduce(
          what, values.data(),
          values.data() + (what.function == kSegments ? what.count * static_cast<std::uint64_t>(rank.rank) : 0));
      if (rank.rank == 0) {
        seen = mine;
      }
    });
    return seen;
  };
  const CallOf half{.count = 2 * kRoleCount, .dtype = DType::bf16};
  EXPECT_EQ(first_of("", {}, "dp"), "-");
  EXPECT_EQ(first_of("[defaults]\nroles = \"all\"\n", half, ""), "c");
  EXPECT_EQ(first_of("[[rule]]\ndtype = \"bf16\"\n", half, ""), "c");
  EXPECT_EQ(first_of("[[rule]]\ndtype = \"bf16\"\n", {}, ""), "-");
  EXPECT_EQ(first_of("[[rule]]\ncommunicator_name = \"dp*\"\n", {}, "dp0"), "c");
  EXPECT_EQ(first_of("[[rule]]\ncommunicator_name = \"dp*\"\n", {}, "tp0"), "-");
  EXPECT_EQ(first_of("[[rule]]\ncommunicator_name = \"dp*\"\n", {}, "differs"), "-");
  EXPECT_EQ(first_of("[[rule]]\nmin_bytes = 1\n", {}, ""), "c");
  EXPECT_EQ(first_of("[[rule]]\nmin_bytes = 1\nroles = \"gradients\"\n", {}, ""), "-");
  EXPECT_EQ(first_of("", {.function = kSegments}, ""), "c") << "FSDP";
  EXPECT_EQ(first_of("", {.function = kSegments, .dtype = DType::bf16}, ""), "-") << "sequence parallelism";
  EXPECT_EQ(first_of("[[rule]]\ndtype = \"bf16\"\n", {.function = kSegments, .dtype = DType::bf16}, ""), "c");
}

// Mutations tried: a factor is left out on the way to the encoders, or to the own part of a sum.
TEST(DeviceRoleCalls, FactorsScaleTheValuesOfTheirRank) {
  struct Scaled {
    Function function;
    DType dtype;
    bool on_device;
    std::string codec;
  };
  for (const Scaled& given : {Scaled{kSegments, DType::f32, false, "int8"}, Scaled{kSegments, DType::f32, true, "int8"},
                              Scaled{Function::nccl_all_reduce, DType::bf16, false, "int8"},
                              Scaled{Function::nccl_all_reduce, DType::bf16, true, "int8"},
                              Scaled{Function::nccl_all_reduce, DType::f32, true, "int4"}}) {
    const std::string policy =
        "[defaults]\nroles = \"all\"\ncodec = \"" + given.codec + "\"\nerror_feedback = \"off\"\n";
    const bool scatters = given.function == kSegments;
    const std::uint64_t count = 2 * kRoleCount;
    const std::uint64_t all = (scatters ? 3 : 1) * count;
    const auto input = [=](std::uint64_t i) { return static_cast<double>(i % 249) / 249; };
    const auto run_scaled = [&](RoleRank& rank, double value) {
      std::vector<double> values(all);
      for (std::uint64_t i = 0; i < all; ++i) {
        values[i] = input(i);
      }
      test::Values sent(given.dtype, values);
      test::Values factor(given.dtype, std::vector<double>{value});
      test::Values result(given.dtype, count);
      EXPECT_EQ(rank.reduce({.count = count,
                             .function = given.function,
                             .dtype = given.dtype,
                             .factor = given.on_device ? 1 : value,
                             .device_factor = given.on_device ? factor.view().data : nullptr},
                            sent.view().data, result.view().data),
                "c");
      return result.doubles();
    };
    run_roles(3, policy, [&](RoleRank& rank) {
      const double bound = given.codec == "int4" ? 0.4 : 0.04;
      const std::uint64_t first = scatters ? static_cast<std::uint64_t>(rank.rank) * count : 0;
      const std::vector<double> none = run_scaled(rank, rank.rank == 0 ? 0.5 : -0.25);
      const std::vector<double> some = run_scaled(rank, rank.rank == 0 ? 0.5 : 0.25);
      for (std::uint64_t i = 0; i < count; i += 37) {
        ASSERT_NEAR(none[i], 0, bound) << i;
        ASSERT_NEAR(some[i], input(first + i), bound) << i;
      }
    });
  }
}

// Mutations tried: the limit is not looked at; memory that one rank lacks ends the call.
TEST(DeviceRoleCalls, WhatDoesNotFitTravelsWithoutFeedback) {
  const auto run_one = [](const std::string& memory, std::size_t limit_of_rank_1) {
    const Configuration configuration =
        configuration_with_roles(memory + "[defaults]\ncodec = \"int4\"\nroles = \"all\"\n");
    std::vector<std::string> codecs;
    run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
      RoleRank rank(configuration, transport, {}, transport->rank() == 1 ? limit_of_rank_1 : ~std::size_t{0});
      std::vector<float> small(kRoleCount, 1.0F);
      std::vector<float> large(10 * kRoleCount, 1.0F);
      std::string seen;
      for (int step = 0; step < 12; ++step) {
        seen += rank.reduce(small) + rank.reduce(large);
      }
      EXPECT_EQ(seen, std::string(16, '-') + std::string(8, 'c'));
      EXPECT_THAT(rank.place.reducer->failure(), IsEmpty());
      EXPECT_THAT(rank.nccl.said, SizeIs(rank.rank == 0 ? 1 : 0)) << "one rank tells it, once";
      std::string codec_of_large;
      for (const auto& [what, totals] : rank.ledger.classes()) {
        if (what.reason == Reason::none) {
          EXPECT_EQ(what.codec, what.count == kRoleCount ? "int4" : "int8");
        }
      }
      EXPECT_GT(rank.place.reducer->residual_bytes(), 4 * kRoleCount);
      EXPECT_LT(rank.place.reducer->residual_bytes(), 8 * kRoleCount);
      if (rank.rank == 0) {
        EXPECT_THAT(rank.nccl.said.at(0), HasSubstr("device_residuals in [memory]"));
      }
    });
  };
  run_one("[memory]\ndevice_residuals = \"200KiB\"\n", ~std::size_t{0});
  run_one("", 700'000);
}

TEST(DeviceRoleCalls, ACapturedCallIsAsTheEagerOnesBefore) {
  run_roles(2, "[defaults]\nroles = \"all\"\n", [](RoleRank& rank) {
    std::vector<float> values(kRoleCount, 1.0F);
    std::vector<float> other(kRoleCount + 8, 1.0F);
    test::HostDevice& device = rank.place.link->host;
    EXPECT_EQ(rank.reduce(values), "c");
    std::fill(values.begin(), values.end(), 1.0F);
    device.begin_capture();
    EXPECT_EQ(rank.reduce(values, {.captured = true}), "c");
    EXPECT_EQ(rank.reduce(other, {.captured = true}), "-") << "no eager call was like it";
    const test::HostDevice::Work graph = device.end_capture();
    EXPECT_EQ(rank.calls(Reason::captured), 1U);
    EXPECT_EQ(values[0], 1.0F) << "nothing ran";
    for (int replay = 1; replay <= 3; ++replay) {
      device.replay(graph);
      device.synchronize();
      EXPECT_NEAR(values[7], std::exp2(replay), 0.1 * replay);
      EXPECT_EQ(rank.reduce(other), "c") << "eager calls go on";
    }
  });
}

// Mutation tried: the kind of call alone decides.
TEST(DeviceRoleCalls, ACapturedCallNeedsMemoryThatWasAskedFor) {
  run_roles(2, "[defaults]\nroles = \"all\"\n", [](RoleRank& rank) {
    std::vector<float> values(kRoleCount, 1.0F);
    const float factor = 0.5F;
    EXPECT_EQ(rank.reduce(values), "c");
    rank.place.link->host.begin_capture();
    EXPECT_EQ(rank.reduce(values, {.device_factor = &factor, .captured = true}), "-") << "its factor would be copied";
    static_cast<void>(rank.place.link->host.end_capture());
    EXPECT_EQ(rank.reduce(values, {.device_factor = &factor}), "c");
    rank.place.link->host.begin_capture();
    EXPECT_EQ(rank.reduce(values, {.device_factor = &factor, .captured = true}), "c");
    static_cast<void>(rank.place.link->host.end_capture());
  });
}

TEST(DeviceRoleCalls, CapturedBucketsNeedTheirRole) {
  run_roles(2, "", [](RoleRank& rank) {
    auto buckets = buffers(4);
    const auto captured = [&] {
      rank.place.link->host.begin_capture();
      std::string seen = rank.reduce(buckets[0], {.captured = true});
      static_cast<void>(rank.place.link->host.end_capture());
      return seen;
    };
    EXPECT_EQ(captured(), "-");
    for (int step = 0; step < 34; ++step) {
      for (auto& bucket : buckets) {
        rank.reduce(bucket);
      }
    }
    EXPECT_EQ(captured(), "c");
    EXPECT_EQ(rank.reduce(buckets[0]), "c") << "the captured call is no part of the step";
  });
}

TEST(DeviceRoleCalls, CapturedCallsKeepNoResiduals) {
  run_roles(2, "[defaults]\ncodec = \"int4\"\nroles = \"all\"\n", [](RoleRank& rank) {
    auto buckets = buffers(2);
    for (int step = 0; step < 12; ++step) {
      for (auto& bucket : buckets) {
        rank.reduce(bucket);
      }
    }
    EXPECT_GT(rank.place.reducer->residual_bytes(), 0U);
    rank.place.link->host.begin_capture();
    EXPECT_EQ(rank.reduce(buckets[0], {.captured = true}), "-");
    static_cast<void>(rank.place.link->host.end_capture());
  });
}

}  // namespace
}  // namespace gradwire::drop_in
