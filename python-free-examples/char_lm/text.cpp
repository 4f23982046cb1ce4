#include "text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace char_lm {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLicenceFolder = "/usr/share/common-licenses";

std::string read_file(const fs::path& path) {
  if (!fs::is_regular_file(path)) {
    throw std::runtime_error("--text " + path.string() + ": no such file");
  }
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in) {
    throw std::runtime_error("--text " + path.string() + ": cannot be read");
  }
  return bytes;
}

// Moves blocks from all over the text to its end, where the held-out part is: the end itself comes from the last files,
// with symbols that do not occur in training. Returns the position at which these blocks begin.
std::size_t move_held_out_blocks(std::string& bytes, double fraction) {
  constexpr std::size_t kMostBytes = 2048;
  const auto held_out = static_cast<std::size_t>(static_cast<double>(bytes.size()) * fraction);
  const std::size_t block = std::clamp<std::size_t>(held_out, 1, kMostBytes);
  const auto every = static_cast<std::size_t>(std::lround(1 / fraction));
  std::string training, rest;
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    (at / block % every == every - 1 ? rest : training) += bytes.substr(at, block);
  }
  bytes = training + rest;
  return training.size();
}

}  // namespace

std::span<const std::uint8_t> Text::shard(int rank, int world_size) const {
  const std::size_t count = training_count / static_cast<std::size_t>(world_size);
  return training().subspan(static_cast<std::size_t>(rank) * count, count);
}

std::vector<fs::path> licence_files() {
  std::vector<fs::path> files;
  if (fs::is_directory(kLicenceFolder)) {
    for (const auto& entry : fs::directory_iterator(kLicenceFolder)) {
      if (entry.is_regular_file()) {
        files.push_back(fs::canonical(entry.path()));
      }
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  if (files.empty()) {
    throw std::runtime_error(std::string("no text to learn: ") + kLicenceFolder +
                             " is empty or missing; give --text FILE...");
  }
  return files;
}

Text load_text(const std::vector<fs::path>& files, double held_out_fraction, std::size_t context, int world_size) {
  std::string bytes;
  Text text;
  for (const fs::path& file : files) {
    bytes += read_file(file);
    text.files.push_back(file.string());
  }
  text.training_count = move_held_out_blocks(bytes, held_out_fraction);
  const std::size_t window = context + 1;
  if (text.training_count / static_cast<std::size_t>(world_size) < window ||
      bytes.size() - text.training_count < window) {
    throw std::runtime_error("the text has " + std::to_string(bytes.size()) +
                             " bytes: too few for a held-out part and " + std::to_string(world_size) +
                             " training parts of at least " + std::to_string(window) +
                             " bytes each; give more --text or a smaller --context");
  }
  std::array<bool, 256> occurs{};
  for (const char c : bytes) {
    occurs[static_cast<std::uint8_t>(c)] = true;
  }
  std::array<std::uint8_t, 256> index{};
  for (std::size_t b = 0; b < occurs.size(); ++b) {
    if (!occurs[b]) {
      continue;
    }
    index[b] = static_cast<std::uint8_t>(text.vocabulary.size());
    text.vocabulary.push_back(static_cast<std::uint8_t>(b));
  }
  text.symbols.reserve(bytes.size());
  for (const char c : bytes) {
    text.symbols.push_back(index[static_cast<std::uint8_t>(c)]);
  }
  return text;
}

}  // namespace char_lm
