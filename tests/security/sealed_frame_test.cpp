// Tests frames of wire version 3 against the golden ones, and that no other bytes are opened. WRITE=1 adds golden
// frames that are missing; existing ones are the format.
#include "security/sealed_frame.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "golden_sealed.hpp"
#include "gradwire/error.hpp"
#include "hex_bytes.hpp"
#include "tests/support/error_of.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kFolder = fs::path(GRADWIRE_SOURCE_DIR) / "tests/golden/version3";

using Frame = std::vector<std::byte>;

Frame committed(const fs::path& file, const Frame& made) {
  const char* writes = std::getenv("WRITE");  // NOLINT(concurrency-mt-unsafe): one thread
  if (writes != nullptr && !fs::exists(file)) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(made.data()), static_cast<long>(made.size()));
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

security::Opener opener(security::Cipher cipher) {
  return {security::Cryptography::load(), cipher, published_sender_key(cipher, 1), "rank 1"};
}

TEST(SealedFrame, IsTheGoldenOne) {
  for (const GoldenSealed& golden : good_sealed_frames()) {
    SCOPED_TRACE(golden.name);
    Frame frame = committed(kFolder / "good" / (golden.name + ".frame"), golden.frame);
    EXPECT_EQ(frame, golden.frame);
    security::Opener receiver = opener(golden.cipher);
    const auto opened = open_frame(receiver, kGoldenTag, frame);
    EXPECT_EQ(Frame(opened.begin(), opened.end()), golden.plain);
  }
}

TEST(SealedFrame, AWrongCrcIsNotSealed) {
  GoldenSealed golden = good_sealed_frames().back();
  ASSERT_NE(wire::parse_header(golden.plain).flags & wire::kFlagCrc, 0);
  golden.plain.back() ^= std::byte{1};
  golden.plain.resize(golden.plain.size() + security::kSealBytes);
  security::Sealer sealer(security::Cryptography::load(), golden.cipher, published_sender_key(golden.cipher, 1));
  EXPECT_THAT(error_of([&] { seal_frame(sealer, kGoldenTag, golden.plain); }).what(), HasSubstr("CRC"));
  EXPECT_EQ(sealer.sealed(), 0U);
}

TEST(SealedFrame, DamagedGoldenOnesAreRefused) {
  std::set<std::string> names;
  for (const auto& bad : bad_sealed_frames()) {
    SCOPED_TRACE(bad.name);
    names.insert(bad.name + ".frame");
    Frame frame = committed(kFolder / "bad" / (bad.name + ".frame"), bad.frame);
    EXPECT_EQ(frame, bad.frame);
    security::Opener receiver = opener(security::Cipher::aes_256_gcm);
    const Error error = error_of([&] { static_cast<void>(open_frame(receiver, kGoldenTag, frame)); });
    EXPECT_TRUE(bad.name.starts_with(to_string(error.code()))) << to_string(error.code());
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1"), HasSubstr(bad.reason)));
  }
  for (const auto& entry : fs::directory_iterator(kFolder / "bad")) {
    EXPECT_TRUE(names.contains(entry.path().filename().string())) << entry.path();
  }
}

// The example of docs/reference/sealed-frames.md.
TEST(SealedFrame, IsThatOfTheDocument) {
  Frame frame = from_hex(
      "4752573102010004000000000400000000000000030000001100000000000000"
      "803f7fff000200000000000000000000" +
      std::string(2 * security::kSealBytes, '0'));
  security::Sealer sealer(security::Cryptography::load(), security::Cipher::aes_256_gcm,
                          published_sender_key(security::Cipher::aes_256_gcm, 1));
  seal_frame(sealer, kGoldenTag, frame);
  EXPECT_EQ(to_hex(frame),
            "4752573103010804000000000400000000000000030000001100000000000000"
            "b453917447c266d82525df153b04460f000000000000000036f0bb1d63e8b281"
            "0d09319530a2c5ec");
}

TEST(SealedFrame, ARankWithoutTheKeySaysSo) {
  const Frame frame = good_sealed_frames().front().frame;
  const Error error = error_of([&] { static_cast<void>(wire::parse_header(frame)); });
  EXPECT_EQ(error.code(), ErrorCode::mismatch);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("is sealed"), HasSubstr("job's key")));
}

TEST(SealedFrame, NoMutationIsOpened) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto goldens = good_sealed_frames();
  for (int round = 0; round < 10000; ++round) {
    const GoldenSealed& golden = goldens[random() % goldens.size()];
    Frame frame = golden.frame;
    for (std::size_t edits = 1 + random() % 3; edits > 0 && !frame.empty(); --edits) {
      const std::size_t at = random() % std::min<std::size_t>(frame.size(), random() % 2 == 0 ? 48 : frame.size());
      switch (random() % 3) {
        case 0: frame[at] ^= static_cast<std::byte>(1 + random() % 255); break;
        case 1: frame.resize(at); break;
        default: frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(at), std::byte{0}); break;
      }
    }
    if (frame == golden.frame) {
      continue;
    }
    security::Opener receiver = opener(golden.cipher);
    const Error error = error_of([&] { static_cast<void>(open_frame(receiver, kGoldenTag, frame)); });
    ASSERT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::mismatch) << error.what();
    ASSERT_THAT(error.what(), HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace gradwire::test
