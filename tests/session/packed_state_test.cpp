// Tests saved states that are packed: they hold the same bits in fewer bytes, and damage is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <string>

#include "codec/packed_pieces.hpp"
#include "model.hpp"
#include "reseal.hpp"
#include "session/parts/checkpoints/checkpoint_folder.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/hex.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

using session::CheckpointName;
using session::SavedState;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A state with values of each size.
SavedState state_of_values(std::size_t count) {
  std::mt19937 random(46);
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> values(count);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  const auto bytes = std::as_bytes(std::span(values));
  SavedState state;
  state.step = 3;
  state.tensors = {{"a", count, DType::f32, 1}, {"b", count, DType::bf16, 1}};
  state.residuals.push_back({{0, codec::EncodeSite::local}, {0, exchange::ResidualStore::Values(std::span(values))}});
  state.sync_modes.anchors.push_back({0, {bytes.begin(), bytes.end()}, std::vector<std::byte>(bytes.size())});
  state.sync_modes.results.push_back(
      {.tensor = 1, .step = 2, .values = {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(2 * count)}});
  state.sync_modes.local_steps.push_back({.tensor = 1, .put_off_to = 4, .moved = true});
  return state;
}

std::string written(SavedState state, bool packed) {
  state.packed = packed;
  std::stringstream stream;
  session::write_state(state, stream);
  return stream.str();
}

SavedState read(const std::string& bytes) {
  std::stringstream stream(bytes);
  return session::read_state(stream, "it");
}

// Mutation tried: a piece that is full is not written.
TEST(PackedState, HoldsTheSameBitsInFewerBytes) {
  for (const std::size_t count : {0U, 1U, 400U, 70'000U, 262'144U, 600'000U}) {  // a piece has 262,144 f32
    const SavedState state = state_of_values(count);
    const std::string plain = written(state, false);
    const std::string packed = written(state, true);
    EXPECT_EQ(written(read(packed), false), plain) << count;
    std::stringstream stream(packed);
    EXPECT_EQ(session::read_step(stream), 3U);
    if (count >= 70'000) {
      EXPECT_LT(static_cast<double>(packed.size()), 0.75 * static_cast<double>(plain.size())) << count;
    }
  }
}

TEST(PackedState, DamageIsNamed) {
  constexpr unsigned kSeed = 46;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const std::string good = written(state_of_values(3000), true);
  for (int round = 0; round < 2000; ++round) {
    std::string bad = good.substr(0, round % 4 == 0 ? random() % good.size() : good.size());
    const bool resealed = round % 4 == 1;
    for (std::uint32_t flips = round % 4 == 0 ? 0 : 1 + random() % 3; flips > 0; --flips) {
      char& byte = bad[24 + random() % (good.size() - 32)];
      byte = static_cast<char>(byte ^ (1 + random() % 255));
    }
    if (resealed) {
      reseal(bad);
    }
    try {
      static_cast<void>(read(bad));
      EXPECT_TRUE(resealed) << "round " << round << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("it: "));
      EXPECT_THAT(error.what(), HasSubstr("use another copy of the state"));
    }
  }
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 4);
  EXPECT_THAT(error_of([&] { static_cast<void>(read(bad)); }).what(), HasSubstr("it: it is damaged"));
}

TEST(PackedState, PiecesOfNoSizeAreRefused) {
  const auto error = [](const std::string& piece) {
    std::size_t at = 0;
    codec::PieceReader reader(
        [&](std::span<std::byte> to) {
          if (to.size() > piece.size() - at) {
            throw Error(ErrorCode::corrupt, "cut");
          }
          std::memcpy(to.data(), piece.data() + at, to.size());
          at += to.size();
        },
        "it", "; advice");
    std::byte byte{};
    return std::string(error_of([&] { reader.read({&byte, 1}); }).what());
  };
  const auto piece = [](std::uint32_t bytes, std::uint8_t each, std::uint32_t stored) {
    std::string text(9, '\0');
    std::memcpy(text.data(), &bytes, 4);
    text[4] = static_cast<char>(each);
    std::memcpy(text.data() + 5, &stored, 4);
    return text;
  };
  constexpr const char* kDamaged = "it: it is damaged: a piece of";
  EXPECT_THAT(error(piece(0, 1, 0)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece(8, 3, 4)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece(8, 0, 4)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece(6, 4, 4)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece(8, 4, 9)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece(8, 1, 4)), HasSubstr(kDamaged));
  EXPECT_THAT(error(piece((1U << 20) + 4, 4, 4)), HasSubstr(kDamaged));
  EXPECT_EQ(error(piece(8, 4, 8)), "cut");
  EXPECT_THAT(error(piece(8, 4, 7) + "abcdefg"), HasSubstr("it: it is damaged"));
}

// A session with few bits has residuals.
struct SavingTrainer {
  std::vector<Gradient> gradients = make_gradients();
  Session session;

  SavingTrainer(const std::shared_ptr<Transport>& transport, const char* save_as)
      : session(transport, Policy::parse("save_as = \"" + std::string(save_as) +
                                         "\"\n[defaults]\ncodec = \"int2\"\nsmall = \"off\"\n")) {
    add_all(session, gradients);
  }
  void run(std::uint64_t until) {
    while (session.step() < until) {
      fill(gradients, session.rank(), session.step());
      for (const Gradient& gradient : gradients) {
        session.ready(gradient.id);
      }
      session.finish();
    }
  }
  [[nodiscard]] std::string saved() {
    std::stringstream stream;
    session.save(stream);
    return stream.str();
  }
};

TEST(PackedState, SessionsReadEitherForm) {
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    SavingTrainer packing(transport, "exact+zstd");
    packing.run(3);
    const std::string packed = packing.saved();
    SavingTrainer plain(transport, "exact");
    std::stringstream stream(packed);
    plain.session.load(stream);
    const std::string bytes = plain.saved();
    EXPECT_LT(packed.size(), bytes.size());
    SavingTrainer again(transport, "exact+zstd");
    stream = std::stringstream(bytes);
    again.session.load(stream);
    EXPECT_EQ(again.saved(), packed);
    packing.run(5);
    plain.run(5);
    for (std::size_t t = 0; t < plain.gradients.size(); ++t) {
      EXPECT_EQ(plain.gradients[t].values, packing.gradients[t].values);
    }
  });
}

// Returns the step that two ranks went on from, and rank 0's parameters.
std::pair<std::uint64_t, std::vector<float>> restored(const fs::path& folder, std::size_t count) {
  std::pair<std::uint64_t, std::vector<float>> result;
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    SavingTrainer trainer(transport, "exact");
    std::vector<float> parameters(count);
    const View all = view(parameters.data(), parameters.size());
    const std::uint64_t step = trainer.session.restore(folder, std::span(&all, 1));
    if (trainer.session.rank() == 0) {
      result = {step, parameters};
    }
  });
  return result;
}

// Mutation tried: the hash of packed parameters is not compared.
TEST(PackedState, CheckpointsFallBackFromDamage) {
  const ScratchFolder folder;
  std::vector<float> parameters(20'000);
  run_ranks(2, [&](const std::shared_ptr<Transport>& transport) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> mine(parameters.size());
    SavingTrainer trainer(transport, "exact+zstd");
    for (const std::uint64_t step : {1U, 2U}) {
      std::generate(mine.begin(), mine.end(), [&] { return normal(random); });
      trainer.run(step);
      const ConstView all = view(mine.data(), mine.size());
      trainer.session.checkpoint(folder.path(), std::span(&all, 1));
      trainer.session.wait_for_checkpoint();
    }
    if (trainer.session.rank() == 0) {
      parameters = mine;
    }
  });
  const CheckpointName name = session::complete_checkpoints(folder.path()).at(0);
  const fs::path file = folder.path() / name.text() / session::kParametersFile;
  EXPECT_LT(fs::file_size(file), 0.9 * static_cast<double>(sizeof(float) * parameters.size()));
  EXPECT_EQ(restored(folder.path(), parameters.size()), std::pair(std::uint64_t{2}, parameters));
  const Error other_model = error_of([&] {
    std::vector<float> fewer(parameters.size() - 1);
    const View all = view(fewer.data(), fewer.size());
    static_cast<void>(session::read_checkpoint_parameters(folder.path(), name, std::span(&all, 1)));
  });
  EXPECT_EQ(other_model.code(), ErrorCode::mismatch) << other_model.what();
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_EQ(restored(folder.path(), parameters.size()).first, 1U);
}

}  // namespace
}  // namespace gradwire::test
