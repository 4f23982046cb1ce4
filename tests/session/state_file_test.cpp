// Tests files of saved states: unsuitable folders are named, and no byte is read out of bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <streambuf>
#include <string>
#include <utility>

#include "model.hpp"
#include "reseal.hpp"
#include "session/state/state_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {
namespace {

TEST(StateFile, DirectoriesThatCannotServeAreNamed) {
  auto transport = make_inproc_world(1)[0];
  const ScratchFolder folder;
  const auto error = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "nothing";
  };
  auto gradients = make_gradients();
  Session session(transport, Policy());
  add_all(session, gradients);
  EXPECT_NE(error([&] { session.load(folder.path() / "none"); }).find("cannot be read"), std::string::npos);
  EXPECT_NE(error([&] { session.load(folder.path()); }).find("holds no state"), std::string::npos);
  std::ofstream(folder.path() / "rank-0-of-x.gradwire") << "x";
  std::ofstream(folder.path() / "rank-0-of-0.gradwire") << "x";
  EXPECT_NE(error([&] { session.load(folder.path()); }).find("holds no state"), std::string::npos);
  session.save(folder.path());
  std::filesystem::copy_file(folder.path() / "rank-0-of-1.gradwire", folder.path() / "rank-0-of-2.gradwire");
  EXPECT_NE(error([&] { session.load(folder.path()); }).find("worlds of 1 and 2 ranks"), std::string::npos);
  std::filesystem::remove(folder.path() / "rank-0-of-1.gradwire");
  EXPECT_NE(error([&] { session.load(folder.path()); }).find("it was renamed"), std::string::npos);
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_NE(error([&] { session.save(folder.path() / "file"); }).find("cannot be written"), std::string::npos);
}

// Mutation tried: the pipe is opened like a file; then nothing ends.
TEST(StateFile, APipeIsNotWaitedFor) {
  const ScratchFolder folder;
  auto gradients = make_gradients();
  Session session(make_inproc_world(1)[0], Policy());
  add_all(session, gradients);
  ASSERT_EQ(::mkfifo(folder.file("rank-0-of-1.gradwire").c_str(), 0600), 0);
  const Error error = error_of([&] { session.load(folder.path()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_THAT(error.what(), ::testing::HasSubstr("rank-0-of-1.gradwire: it is a pipe"));
  session.save(folder.path());  // replaces the pipe
  session.load(folder.path());
}

std::string bytes_of_a_state(ResidualDType residuals = ResidualDType::f32) {
  session::SavedState state;
  state.tensors = {{"a", 10, DType::f32, 1}, {"b", 20, DType::f16, 1}};
  state.residuals.push_back({{1, codec::EncodeSite::local}, {5, exchange::ResidualStore::Values(15, residuals)}});
  state.step = 3;
  state.sync_modes.anchors.push_back({0, std::vector<std::byte>(40), std::vector<std::byte>(40)});
  state.sync_modes.results.push_back({.tensor = 1, .step = 2, .values = std::vector<std::byte>(40)});
  state.sync_modes.local_steps.push_back({.tensor = 1, .put_off_to = 4, .moved = true});
  std::stringstream stream;
  session::write_state(state, stream);
  return stream.str();
}

// A file that can be read up to a place where the disk fails.
class FailingFile : public std::streambuf {
 public:
  explicit FailingFile(std::string bytes) : bytes_(std::move(bytes)) {
    setg(bytes_.data(), bytes_.data(), bytes_.data() + bytes_.size());
  }

 private:
  int_type underflow() override { throw std::runtime_error("the disk fails"); }
  std::string bytes_;
};

// If the disk fails, the file may still be whole, so the checkpoint must not be set aside.
TEST(StateFile, ADiskThatFailsIsNoDamage) {
  const std::string good = bytes_of_a_state();
  for (const std::size_t length : {std::size_t{4}, std::size_t{30}, good.size() / 2, good.size() - 3}) {
    FailingFile file(good.substr(0, length));
    std::istream stream(&file);
    EXPECT_EQ(error_of([&] { static_cast<void>(session::read_state(stream, "it")); }).code(),
              ErrorCode::invalid_argument)
        << length;
  }
}

// Any bytes after a correct header and with a correct checksum give an error, or a state within its bounds.
TEST(StateFile, DamagedContentNeverReadsOutOfBounds) {
  const unsigned seed = 5;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int loaded = 0;
  constexpr ResidualDType kDTypes[] = {ResidualDType::f32, ResidualDType::bf16, ResidualDType::int8};
  for (int round = 0; round < 4000; ++round) {
    const std::string good = bytes_of_a_state(kDTypes[round % 3]);
    std::string bad = good;
    for (std::uint32_t flips = 1 + random() % 3; flips > 0; --flips) {
      bad[24 + random() % (good.size() - 32)] = static_cast<char>(random());
    }
    reseal(bad);
    std::stringstream in(bad);
    try {
      const session::SavedState read = session::read_state(in, "fuzz");
      for (const auto& residual : read.residuals) {
        ASSERT_LT(residual.key.tensor, read.tensors.size());
        ASSERT_LE(residual.range.end(), read.tensors[residual.key.tensor].count);
      }
      for (const auto& result : read.sync_modes.results) {
        const TensorInfo& tensor = read.tensors.at(result.tensor);
        ASSERT_EQ(result.values.size(), tensor.count * element_bytes(tensor.dtype));
        ASSERT_LT(result.step, read.step);
      }
      for (const auto& local : read.sync_modes.local_steps) {
        ASSERT_LT(local.tensor, read.tensors.size());
        ASSERT_LE(local.put_off_to, read.step + 1);
      }
      for (const auto& anchor : read.sync_modes.anchors) {
        ASSERT_EQ(anchor.parameters.size(), anchor.momentum.size());
      }
      ++loaded;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::corrupt) << error.what();
    }
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace gradwire::test
