// A store of residuals that keeps most of them in a file, against one that keeps all of them in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "exchange/residuals/residual_store.hpp"
#include "gradwire/error.hpp"
#include "tests/support/scratch_file_access.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::exchange {
namespace {

constexpr std::uint32_t kTensors = 6;
constexpr std::uint64_t kMemory = std::uint64_t{96} << 10;

ResidualForm form_in_memory(ResidualDType dtype) { return {.dtypes = std::vector<ResidualDType>(kTensors, dtype)}; }

ResidualForm form_in_file(ResidualDType dtype, const test::ScratchFolder& folder) {
  ResidualForm form = form_in_memory(dtype);
  form.places.resize(kTensors, ResidualPlace{folder.path().string(), kMemory});
  return form;
}

std::map<ResidualKey, std::map<std::uint64_t, std::vector<std::byte>>> entries_of(const ResidualStore& store) {
  std::map<ResidualKey, std::map<std::uint64_t, std::vector<std::byte>>> entries;
  for (const auto& [key, ranges] : store.entries()) {
    entries[key];
    for (const ResidualStore::Range& range : ranges) {
      range.values.for_each_bytes([&](std::span<const std::byte> bytes) {
        auto& all = entries[key][range.offset];
        all.insert(all.end(), bytes.begin(), bytes.end());
      });
    }
  }
  return entries;
}

// Changes both stores alike, and compares what they give back.
class Pair {
 public:
  Pair(ResidualStore& spilled, ResidualStore& plain, std::uint32_t seed)
      : spilled_(spilled), plain_(plain), random_(seed) {}

  [[nodiscard]] std::uint32_t random(std::uint32_t below) { return random_() % below; }
  void each(const std::function<void(ResidualStore&)>& change) {
    change(spilled_);
    change(plain_);
  }

  void change(std::uint64_t step) {
    constexpr codec::EncodeSite kTwoSites[] = {codec::EncodeSite::local, codec::EncodeSite::owner};
    const ResidualKey key{random(kTensors), kTwoSites[random(2)]};
    const std::uint64_t offset = random(3) == 0 ? random(20'000) : 0;
    const std::uint64_t count = random(5) == 0 ? random(50) : 5'000 + random(30'000);
    switch (random(9)) {
      case 0:
      case 1: each([&](ResidualStore& s) { s.keep(key, offset, count); }); break;
      case 2:
        each([&](ResidualStore& s) { random_ahead() % 3 == 0 ? s.drop(key) : s.copy_before_changes(key.tensor); });
        break;
      case 3: {
        ResidualStore::Values values(std::vector<float>(count, 0.25F));
        each([&](ResidualStore& s) { s.add(key, offset, values, 3.0F); });
        break;
      }
      case 4: {
        std::vector<float> one(count, 1);
        std::vector<float> other(count, 1);
        spilled_.fold(key, offset, count, {.factor = 2.0}, codec::Working::f32, one.data());
        plain_.fold(key, offset, count, {.factor = 2.0}, codec::Working::f32, other.data());
        ASSERT_EQ(one, other);
        break;
      }
      case 5: ASSERT_EQ(spilled_.holds(key, offset, count), plain_.holds(key, offset, count)); break;
      default: encode(key, step);
    }
  }

 private:
  [[nodiscard]] std::uint32_t random_ahead() const { return std::mt19937(random_)(); }

  // Loads and stores every tile of a key.
  void encode(const ResidualKey& key, std::uint64_t step) {
    const auto found = plain_.entries().find(key);
    if (found == plain_.entries().end()) {
      return;
    }
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const ResidualStore::Range& range : found->second) {
      ranges.emplace_back(range.offset, range.values.size());
    }
    std::vector<float> one(4096);
    std::vector<float> other(4096);
    for (const auto& [offset, count] : ranges) {
      for (std::uint64_t done = 0; done < count; done += 4096) {
        const std::uint64_t some = std::min<std::uint64_t>(4096, count - done);
        const float* a = spilled_.load(key, offset + done, some, one.data());
        const float* b = plain_.load(key, offset + done, some, other.data());
        ASSERT_TRUE(std::equal(a, a + some, b));
        std::vector<float> values(some);
        std::generate(values.begin(), values.end(), [&] { return static_cast<float>(random_() % 1000) / 7; });
        each([&](ResidualStore& s) { s.write(key, offset + done, some, values.data(), step); });
      }
    }
  }

  ResidualStore& spilled_;
  ResidualStore& plain_;
  std::mt19937 random_;
};

// Mutations tried: commit() does not swap where values are spilled; a copy shares pages; fill_zero() forgets the file.
TEST(SpilledResiduals, HoldWhatMemoryHoldsThroughEveryChange) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const test::ScratchFolder folder;
  for (const ResidualDType dtype : {ResidualDType::f32, ResidualDType::bf16, ResidualDType::int8}) {
    for (const bool undoes : {false, true}) {
      ResidualStore spilled(form_in_file(dtype, folder));
      ResidualStore plain(form_in_memory(dtype));
      Pair pair(spilled, plain, seed);
      if (undoes) {
        pair.each([](ResidualStore& s) { s.remember(); });
      }
      for (std::uint64_t step = 0; step < 25; ++step) {
        for (int i = 0; i < 12; ++i) {
          pair.change(step);
          ASSERT_FALSE(HasFatalFailure());
        }
        ASSERT_EQ(entries_of(spilled), entries_of(plain)) << step;
        const bool commits = pair.random(2) == 0;
        pair.each([&](ResidualStore& s) { commits ? s.commit() : s.undo(); });
        if (pair.random(5) == 0) {
          pair.each([](ResidualStore& s) { s.multiply(0.5F); });
        }
        ASSERT_EQ(entries_of(spilled), entries_of(plain)) << step;
      }
      EXPECT_EQ(spilled.bytes(), plain.bytes());
      // Values of less than a page stay in memory.
      EXPECT_LE(spilled.resident_bytes(), kMemory + 4 * kTensors * std::uint64_t{4096});
      spilled.set_form(form_in_memory(dtype));
      EXPECT_EQ(entries_of(spilled), entries_of(plain));
      EXPECT_EQ(spilled.resident_bytes(), spilled.bytes() + spilled.second_bytes());
    }
  }
}

// Everything that may fail happens before a step counts. The file is damaged in between. Mutation tried: nothing calls
// prepare_commit().
TEST(SpilledResiduals, ACommitThatWasPreparedReadsNothing) {
  const test::ScratchFolder folder;
  constexpr std::uint64_t kCount = 200'000;
  const ResidualKey key{0, codec::EncodeSite::local};
  ResidualStore store;
  store.set_form(form_in_file(ResidualDType::f32, folder));
  store.keep(key, 0, kCount);
  store.remember();
  const std::vector<float> some(kCount / 2, 1.0F);
  store.write(key, 0, some.size(), some.data());
  store.commit();
  store.write(key, some.size(), some.size(), some.data());  // other elements than before
  store.prepare_commit();
  const std::vector<int> files = test::open_scratch_files(folder.path());
  ASSERT_EQ(files.size(), 1U);
  ASSERT_EQ(::ftruncate(files[0], 0), 0);
  ::close(files[0]);
  EXPECT_NO_THROW(store.commit());
  std::vector<float> all(kCount);
  EXPECT_THROW(static_cast<void>(store.load(key, 0, kCount, all.data())), Error) << "nothing was damaged";
}

}  // namespace
}  // namespace gradwire::exchange
