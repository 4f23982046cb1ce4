#include "golden_sealed.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "hex_bytes.hpp"
#include "security/key_schedule.hpp"
#include "wire/frame.hpp"

namespace gradwire::test {
namespace {

using security::Cipher;
using security::kSealBytes;

constexpr const char* kBases[] = {"int8-bf16", "topk41-int8-f32", "length-fp8-f32"};

// Returns the golden frame of version 2, with or without a CRC.
std::vector<std::byte> base(const std::string& name, bool crc) {
  std::ifstream stream(std::filesystem::path(GRADWIRE_SOURCE_DIR) / "tests/golden/version2/good" / (name + ".frame"),
                       std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  std::vector<std::byte> frame(bytes.begin(), bytes.end());
  wire::FrameHeader header = wire::parse_header(frame);
  header.flags = static_cast<std::uint8_t>((header.flags & ~wire::kFlagCrc) | (crc ? wire::kFlagCrc : 0));
  write_header(header, frame);
  return frame;
}

}  // namespace

security::Key published_sender_key(Cipher cipher, std::uint32_t rank) {
  const auto cryptography = security::Cryptography::load();
  std::vector<security::Salt> salts(2);
  for (std::size_t i = 0; i < 64; ++i) {
    salts[i / 32][i % 32] = static_cast<std::byte>(32 + i);
  }
  return sender_key(cryptography, first_world_secret(cryptography, published_key(), salts), security::Purpose::frames,
                    cipher, rank);
}

std::vector<GoldenSealed> good_sealed_frames() {
  std::vector<GoldenSealed> all;
  for (const Cipher cipher : {Cipher::aes_256_gcm, Cipher::chacha20_poly1305}) {
    security::Sealer sealer(security::Cryptography::load(), cipher, published_sender_key(cipher, 1));
    const auto add = [&](const std::string& name, std::vector<std::byte> plain) {
      GoldenSealed golden{(cipher == Cipher::aes_256_gcm ? "aes-" : "chacha-") + name, cipher, std::move(plain), {}};
      golden.frame = golden.plain;
      golden.frame.resize(golden.frame.size() + kSealBytes);
      seal_frame(sealer, kGoldenTag, golden.frame);
      all.push_back(std::move(golden));
    };
    for (const std::string name : kBases) {
      add(name, base(name, false));
    }
    add("crc-int8-bf16", base("int8-bf16", true));
  }
  return all;
}

std::vector<BadSealed> bad_sealed_frames() {
  const GoldenSealed good = good_sealed_frames().front();
  const std::size_t seal = good.frame.size() - kSealBytes;
  std::vector<BadSealed> all;
  const auto add = [&](const std::string& name, const std::string& reason, auto change) {
    all.push_back({name, reason, good.frame});
    change(all.back().frame);
  };
  const auto flip = [](std::size_t at) { return [=](auto& frame) { frame[at] ^= std::byte{1}; }; };
  add("corrupt-step", "were changed", flip(24));
  add("corrupt-payload-bit", "were changed", flip(100));
  add("corrupt-counter-bit", "were changed", flip(seal));
  add("corrupt-tag-bit", "were changed", flip(good.frame.size() - 1));
  add("corrupt-counter-beyond", "no sender reaches", flip(seal + 6));
  add("corrupt-one-byte-short", "were changed", [](auto& frame) { frame.pop_back(); });
  add("corrupt-one-byte-long", "no sender reaches", [](auto& frame) { frame.push_back(std::byte{0}); });
  add("corrupt-half-a-seal", "header and seal alone have 56", [](auto& frame) { frame.resize(44); });
  add("corrupt-not-sealed", "is not sealed", [&](auto& frame) { frame = good.plain; });
  add("corrupt-without-its-flag", "is not sealed", [](auto& frame) { frame[6] &= std::byte{0xf7}; });
  add("corrupt-crc-flag", "were changed", flip(6));
  add("corrupt-with-a-crc", "has a CRC", flip(28));
  add("corrupt-flags", "unknown flags", [](auto& frame) { frame[6] |= std::byte{0x10}; });
  add("corrupt-nonfinite-flag", "were changed", [](auto& frame) { frame[6] ^= std::byte{2}; });
  add("mismatch-version", "wire version 4", [](auto& frame) { frame[4] = std::byte{4}; });
  add("corrupt-of-another-rank", "were changed", [&](auto& frame) {
    security::Sealer sealer(security::Cryptography::load(), good.cipher, published_sender_key(good.cipher, 0));
    std::memcpy(frame.data(), good.plain.data(), good.plain.size());
    seal_frame(sealer, kGoldenTag, frame);
  });
  add("corrupt-under-another-tag", "were changed", [&](auto& frame) {
    security::Sealer sealer(security::Cryptography::load(), good.cipher, published_sender_key(good.cipher, 1));
    std::memcpy(frame.data(), good.plain.data(), good.plain.size());
    seal_frame(sealer, kGoldenTag + 8, frame);
  });
  return all;
}

}  // namespace gradwire::test
