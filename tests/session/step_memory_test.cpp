// Counts what steps ask the system for: regions of the page pool, and allocations of 4 KiB or more of the C library's
// heap, which this program replaces.
#include <execinfo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gradwire/communicator.hpp"
#include "gradwire/optimizer.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "memory/block.hpp"
#include "memory/process_pool.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/forwarding_transport.hpp"
#include "tests/support/ranks.hpp"

// The C library's own functions, under the names by which a replacement may call them.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

// The requests that were counted, with who made the first of them.
struct Requests {
  std::atomic<bool> counts = false;
  std::atomic<std::uint64_t> number = 0;
  std::atomic<std::size_t> largest = 0;
  std::array<void*, 24> stack = {};
  int depth = 0;
};
Requests g_requests;

void note(std::size_t bytes) {
  if (!g_requests.counts.load(std::memory_order_relaxed) || bytes < gradwire::memory::kPageBytes) {
    return;
  }
  if (g_requests.number.fetch_add(1) == 0) {
    g_requests.largest = bytes;
    g_requests.depth = ::backtrace(g_requests.stack.data(), static_cast<int>(g_requests.stack.size()));
  }
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) noexcept {
  note(bytes);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  note(count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  note(bytes);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  note(bytes);
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 2;

// Counts while it exists.
class Counting {
 public:
  Counting() : maps_(memory::page_pool().statistics().maps) {
    g_requests.number = 0;
    g_requests.counts = true;
  }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
  ~Counting() {
    g_requests.counts = false;
    // The ranks are threads, and may need the most at the same moment for the first time.
    EXPECT_LE(memory::page_pool().statistics().maps, maps_ + 1) << "regions of the pool";
    EXPECT_EQ(g_requests.number, 0U) << "allocations of 4 KiB or more; the first one had " << g_requests.largest
                                     << " bytes, from:";
    if (g_requests.number > 0) {
      ::backtrace_symbols_fd(g_requests.stack.data(), g_requests.depth, 2);
    }
  }

 private:
  std::uint64_t maps_;
};

// Calls `step` on each rank: three times, and eight times that are counted on rank 0.
void count_steps(std::barrier<>& meet, int rank, const std::function<void()>& step) {
  for (int warm = 0; warm < 3; ++warm) {
    step();
  }
  meet.arrive_and_wait();
  std::optional<Counting> counting;
  if (rank == 0) {
    counting.emplace();
  }
  meet.arrive_and_wait();
  for (int counted = 0; counted < 8; ++counted) {
    step();
  }
  meet.arrive_and_wait();
  counting.reset();
  meet.arrive_and_wait();
}

Policy policy_from(const std::string& defaults) { return Policy::parse("floor = 0\n[defaults]\n" + defaults); }

struct Case {
  std::string name;
  std::string defaults;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class StepMemory : public ::testing::TestWithParam<Case> {};

// Steps of a model with tensors from 40 bytes to 2 MB. The first three may take memory.
TEST_P(StepMemory, IsThePoolsAfterTheThirdStep) {
  void* warm_up[4];
  ::backtrace(warm_up, 4);              // its first call loads a library
  ::setenv("GRADWIRE_SLOW", "off", 1);  // else /proc is read now and then, through buffers of the C library
  std::barrier meet(kRanks);
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    // The ranks' own threads do everything: a further one would take its scratch tiles when it first encodes.
    Session session(std::move(transport), policy_from(GetParam().defaults), {.threading = Threading::main_thread});
    std::vector<std::vector<float>> gradients;
    std::vector<TensorId> ids;
    for (const std::size_t count : {500'000, 10, 70'000, 3'000, 200'000}) {
      gradients.emplace_back(count);
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      ids.push_back(session.add("t" + std::to_string(i), view(gradients[i].data(), gradients[i].size())));
    }
    std::mt19937 random(static_cast<std::uint32_t>(session.rank()));
    const auto step = [&] {
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        for (float& value : gradients[i]) {
          value = static_cast<float>(random() % 1000) - 500;
        }
        session.ready(ids[i]);
      }
      session.finish();
    };
    count_steps(meet, session.rank(), step);
  });
}

INSTANTIATE_TEST_SUITE_P(Of, StepMemory,
                         ::testing::Values(Case{"exact", "codec = \"exact\""}, Case{"packed", "codec = \"exact+zstd\""},
                                           Case{"int8", "codec = \"int8\""}, Case{"int4Feedback", "codec = \"int4\""},
                                           Case{"topk", "codec = \"topk(1%)+int8\""},
                                           Case{"oneShot", "codec = \"int4\"\nalgorithm = \"one_shot\""},
                                           Case{"late", "codec = \"int4\"\nsync = { async = true, staleness = 1 }"}),
                         [](const ::testing::TestParamInfo<Case>& one) { return one.param.name; });

constexpr std::size_t kIds = 120;  // lists of ids, which the heap holds, are below a page; rows have 30 KiB
constexpr std::uint32_t kWidth = 64;

std::vector<std::uint64_t> every_third(int rank) {
  std::vector<std::uint64_t> ids(kIds);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = 3 * i + static_cast<std::uint64_t>(rank);
  }
  return ids;
}

TEST(TableMemory, OfASessionIsThePoolsAfterTheThirdStep) {
  std::barrier meet(kRanks);
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy(), {.threading = Threading::main_thread});
    const TableId table = session.add_table({.name = "users", .rows = 4 * kIds, .width = kWidth});
    const std::vector<std::uint64_t> ids = every_third(session.rank());
    std::vector<float> rows(kIds * kWidth);
    count_steps(meet, session.rank(), [&] {
      static_cast<void>(session.pull(table, ids, rows));
      session.push(table, ids, rows);
      session.finish();
    });
  });
}

TEST(TableMemory, OfATableByClocksIsThePoolsAfterTheThirdStep) {
  std::barrier meet(kRanks);
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    Table table(std::move(transport), {.rows = 4 * kIds, .width = kWidth, .staleness = 1, .cache_bytes = 1 << 20});
    const std::vector<std::uint64_t> ids = every_third(table.rank());
    std::vector<float> rows(kIds * kWidth);
    count_steps(meet, table.rank(), [&] {
      table.pull(ids, rows);
      table.push(ids, rows);
      table.tick();
      table.synchronize();
    });
  });
}

// Moments are what an optimizer adds to a job's memory.
TEST(OptimizerMemory, IsThePools) {
  std::vector<float> parameter(100'000);
  const std::uint64_t before = memory::page_pool().statistics().in_use;
  {
    AdamW optimizer;
    const std::size_t index = optimizer.add("weights", parameter, parameter);
    EXPECT_GE(memory::page_pool().statistics().in_use, before + 2 * sizeof(float) * parameter.size());
    static_cast<void>(optimizer.scale(index));
    EXPECT_GE(memory::page_pool().statistics().in_use, before + 3 * sizeof(float) * parameter.size());
  }
  EXPECT_EQ(memory::page_pool().statistics().in_use, before);
}

// Calls of sizes that change all the time: the pool finds what it needs within its first calls.
TEST(CallMemory, OfChangingSizesStopsToGrow) {
  constexpr int kCalls = 10'000;
  constexpr int kFirst = 100;
  std::barrier meet(kRanks);
  std::uint64_t reserved = 0;
  run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
    Communicator communicator(std::move(transport));
    std::mt19937 sizes(11);  // the same on both ranks
    std::vector<float> values(60'000, 1.5F);
    for (int call = 0; call < kCalls; ++call) {
      const std::size_t count =
          call < kFirst ? values.size() - 100U * static_cast<unsigned>(call) : 1 + sizes() % values.size();
      communicator.all_reduce(view(values.data(), call % 4 == 0 ? count : count / 20 + 1), {.codec = "int8"});
      if (call == kFirst) {
        meet.arrive_and_wait();
        if (communicator.rank() == 0) {
          reserved = memory::page_pool().statistics().reserved_high_water;
        }
        meet.arrive_and_wait();
      }
    }
  });
  EXPECT_EQ(memory::page_pool().statistics().reserved_high_water, reserved);
}

// A session says before its first step that its residuals do not fit. All ranks learn of it.
TEST(LimitedMemory, IsAnErrorBeforeTheFirstStep) {
  const auto errors = run_ranks_catching(make_inproc_world(kRanks), [&](std::shared_ptr<Transport> transport) {
    Session session(transport, Policy::parse("floor = 0\n[memory]\nlimit = \"4MiB\"\n[defaults]\ncodec = \"int4\"\n"));
    std::vector<float> gradient(3'000'000);
    const TensorId id = session.add("large", view(gradient.data(), gradient.size()));
    session.ready(id);
    session.finish();
  });
  memory::configure_page_pool({}, std::nullopt, 1);
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error_of([&] { std::rethrow_exception(error); }).what(),
                AllOf(HasSubstr("steps of this plan need"), HasSubstr("the limit is 4MiB"), HasSubstr("[memory]")));
  }
}

// The check before the first step does not count what the sum of a library copies.
class WithoutNativeSums final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  [[nodiscard]] TransportCapabilities capabilities() const override {
    TransportCapabilities all = inner().capabilities();
    all.native_all_reduce_f32 = all.native_all_reduce_f64 = false;
    return all;
  }
};

// Codecs of auto whose residuals do not fit are left out. The steps are more than those in which auto takes no codec of
// less than 8 bits anyway.
TEST(LimitedMemory, AutoGoesWithoutCodecsWhoseResidualsDoNotFit) {
  const auto errors = run_ranks_catching(make_inproc_world(kRanks), [&](std::shared_ptr<Transport> transport) {
    Session session(std::make_shared<WithoutNativeSums>(transport),
                    Policy::parse("floor = 0\n[bucket]\nin_flight = \"1MiB\"\nchunk = \"64KiB\"\n"
                                  "[memory]\nlimit = \"24MiB\"\n"
                                  "[defaults]\ncodec = \"auto\"\nallow = [\"int8\", \"int4\"]\n"));
    std::vector<float> gradient(8'000'000);
    const TensorId id = session.add("large", view(gradient.data(), gradient.size()));
    for (int step = 0; step < 60; ++step) {
      std::fill(gradient.begin(), gradient.end(), 1.0F);
      session.ready(id);
      session.finish();
      EXPECT_NEAR(gradient[12345], 1, 0.02);
      EXPECT_EQ(session.residual_bytes(), 0U);
    }
    for (const CodecSwitch& change : session.statistics().switches) {
      EXPECT_NE(change.to, "int4");
    }
  });
  memory::configure_page_pool({}, std::nullopt, 1);
  for (const std::exception_ptr& error : errors) {
    EXPECT_FALSE(error) << (error ? error_of([&] { std::rethrow_exception(error); }).what() : "");
  }
}

// A limit that is reached within a step, since others took the memory meanwhile, is an error on every rank, too;
// nothing stays in use.
TEST(LimitedMemory, WithinAStepIsAnErrorOnEveryRank) {
  const std::uint64_t before = memory::page_pool().statistics().in_use;
  std::barrier meet(kRanks);
  const auto errors = run_ranks_catching(make_inproc_world(kRanks), [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), policy_from("codec = \"int4\""));
    std::vector<float> gradient(3'000'000);
    const TensorId id = session.add("large", view(gradient.data(), gradient.size()));
    session.reserve();  // ranks agree on the plan, which has room
    meet.arrive_and_wait();
    if (session.rank() == 0) {
      memory::PagePool& pool = memory::page_pool();
      pool.compact({});
      memory::PagePoolOptions options = pool.options();
      options.limit = {pool.statistics().reserved + memory::kRegionBytes, "the test"};
      options.limit_now = {};
      pool.configure(options);
    }
    meet.arrive_and_wait();
    session.ready(id);
    session.finish();
  });
  memory::configure_page_pool({}, std::nullopt, 1);
  bool said = false;
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    const Error known = error_of([&] { std::rethrow_exception(error); });
    said = said || known.code() == ErrorCode::out_of_memory;
    EXPECT_THAT(known.what(), AllOf(HasSubstr("(the test)"), HasSubstr("residuals")));
  }
  EXPECT_TRUE(said);
  EXPECT_EQ(memory::page_pool().statistics().in_use, before);
}

// Ranks wait for each other in a sum, so that it may not fail on one of them.
TEST(LimitedMemory, ASumOfTheTransportNeedsNone) {
  memory::configure_page_pool({}, 2 * memory::kRegionBytes, 1);
  std::vector<memory::Block> taken;
  try {
    for (;;) {
      taken.emplace_back(std::size_t{1} << 16, memory::MemoryUse::frames);
    }
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  run_ranks(kRanks, [](const std::shared_ptr<Transport>& transport) {
    std::vector<float> values(100'000, 1.5F);
    Operation operation;
    transport->post_all_reduce(operation, view(values.data(), values.size()));
    while (operation.pending()) {
      transport->progress(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(values.back(), 1.5F * kRanks);
  });
  taken.clear();
  memory::configure_page_pool({}, std::nullopt, 1);
}

// Rows are not known before they come: the call that brings them says that they do not fit.
TEST(LimitedMemory, OfRowsIsAnErrorOfTheirStep) {
  const auto errors = run_ranks_catching(make_inproc_world(kRanks), [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), Policy::parse("[memory]\nlimit = \"8MiB\"\n"));
    const TableId table = session.add_table({.name = "users", .rows = 1'000'000, .width = 64});
    std::vector<std::uint64_t> ids(1000);
    const std::vector<float> gradients(ids.size() * 64, 1);
    for (std::uint64_t step = 0; step < 200; ++step) {
      std::iota(ids.begin(), ids.end(), step * ids.size());
      session.push(table, ids, gradients);
      session.finish();
    }
  });
  memory::configure_page_pool({}, std::nullopt, 1);
  for (const std::exception_ptr& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THAT(error_of([&] { std::rethrow_exception(error); }).what(),
                AllOf(HasSubstr("of host memory"), HasSubstr("the limit is 8MiB")));
  }
}

// Where compaction is due, the end of a step moves residuals, and results stay what they were.
TEST(CompactedMemory, KeepsResiduals) {
  const auto results = [](bool compacts) {
    std::vector<float> last;
    run_ranks(kRanks, [&](std::shared_ptr<Transport> transport) {
      Session session(std::move(transport), policy_from("codec = \"int4\""));
      std::vector<std::vector<float>> gradients(40, std::vector<float>(5'000));
      std::vector<TensorId> ids;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        ids.push_back(session.add("t" + std::to_string(i), view(gradients[i].data(), gradients[i].size())));
      }
      std::mt19937 random(static_cast<std::uint32_t>(session.rank()));
      for (int step = 0; step < 6; ++step) {
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          for (float& value : gradients[i]) {
            value = static_cast<float>(random() % 1000) - 500;
          }
          session.ready(ids[i]);
        }
        if (compacts && session.rank() == 0) {
          memory::PagePoolOptions options = memory::page_pool().options();
          options.compact_failures = 1;
          memory::page_pool().configure(options);
          error_of([] { memory::page_pool().require(std::uint64_t{1} << 60, "the test needs"); });
        }
        session.finish();
      }
      if (session.rank() == 0) {
        last = gradients[7];
      }
    });
    return last;
  };
  const std::uint64_t before = memory::page_pool().statistics().compactions;
  const std::vector<float> plain = results(false);
  EXPECT_EQ(memory::page_pool().statistics().compactions, before);
  EXPECT_EQ(results(true), plain);
  EXPECT_GT(memory::page_pool().statistics().compactions, before);
}

}  // namespace
}  // namespace gradwire::test
