// Compares the memory of encrypted copies with the forecast.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gradwire/session.hpp"
#include "key_in_environment.hpp"
#include "memory/process_pool.hpp"
#include "plan/memory_use.hpp"
#include "tests/support/ranks.hpp"

namespace gradwire::test {
namespace {

// Notes the most bytes of frames that the pool of this process ever gave out.
class MostFrames {
 public:
  MostFrames() {
    memory::page_pool().watch([this](const memory::PoolEvent& event) {
      if (event.use == memory::MemoryUse::frames) {
        now_ += event.taken ? static_cast<std::int64_t>(event.bytes) : -static_cast<std::int64_t>(event.bytes);
        most_ = std::max(most_, now_);
      }
    });
  }
  ~MostFrames() { memory::page_pool().watch({}); }
  MostFrames(const MostFrames&) = delete;
  MostFrames& operator=(const MostFrames&) = delete;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(most_); }

 private:
  std::int64_t now_ = 0;
  std::int64_t most_ = 0;
};

// All ranks share the pool.
TEST(SealedMemory, IsNoMoreThanTheForecast) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kCount = 3'000'000;
  for (const char* codec : {"int8", "exact"}) {
    SCOPED_TRACE(codec);
    const Policy policy =
        Policy::parse(std::string("[bucket]\nin_flight = \"512KiB\"\nchunk = \"32KiB\"\n[defaults]\n") +
                      "algorithm = \"two_shot\"\ncodec = \"" + codec + "\"\n");
    std::uint64_t forecast = 0;
    std::uint64_t of_frames = 0;
    const auto plan_with = [&](bool sealed) {
      return plan::make_plan(policy, {{"tensor", kCount, DType::f32, 1, {}, {}, {}, 0}},
                             {.world_size = kThreads, .sealed = sealed});
    };
    for (int rank = 0; rank < kThreads; ++rank) {
      const plan::MemoryUse use = memory_of(plan_with(true), rank);
      forecast += use.frames + use.sealed;
      of_frames += use.frames;
    }
    const auto run = [&] {
      const MostFrames most;
      run_ranks(kThreads, [&](const std::shared_ptr<Transport>& transport) {
        Session session(transport, policy);
        std::vector<float> values(kCount, 1.0F);
        const TensorId id = session.add("tensor", view(values.data(), kCount));
        for (int step = 0; step < 2; ++step) {
          session.ready(id);
          session.finish();
        }
      });
      return most.bytes();
    };
    const std::uint64_t plain = run();
    EXPECT_LE(plain, of_frames);
    const KeyInEnvironment key;
    const std::uint64_t sealed = run();
    EXPECT_GT(sealed, plain) << "a frame under way has a copy";
    EXPECT_LE(sealed, forecast);
  }
}

}  // namespace
}  // namespace gradwire::test
