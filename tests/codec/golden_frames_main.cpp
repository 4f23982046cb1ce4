// golden_frames FOLDER adds missing frames to tests/golden: good and bad frames of the version that this build writes,
// and damaged copies of the good ones of older versions. It leaves existing frames alone: they are the format.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "golden_frames.hpp"
#include "gradwire/version.hpp"
#include "wire/frame.hpp"

namespace {

namespace fs = std::filesystem;

void save(const fs::path& file, std::span<const std::byte> bytes) {
  if (fs::exists(file)) {
    return;
  }
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<long>(bytes.size()));
  std::cout << "wrote " << file.string() << '\n';
}

std::vector<std::byte> load(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void add_missing(const fs::path& folder, int version) {
  fs::create_directories(folder / "good");
  fs::create_directories(folder / "bad");
  auto good = gradwire::test::good_frames(version);
  std::ofstream manifest(folder / "manifest.txt");
  for (auto& golden : good) {
    const fs::path file = folder / "good" / (golden.name + ".frame");
    if (version == gradwire::kWireVersion) {
      save(file, golden.frame);
    }
    golden.frame = load(file);
    manifest << manifest_line(golden) << '\n';
  }
  std::ofstream bases(folder / "bad.txt");
  for (const auto& bad : bad_frames(version, good)) {
    save(folder / "bad" / (bad.name + ".frame"), bad.frame);
    bases << manifest_line(bad) << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: golden_frames FOLDER\n";
    return 2;
  }
  for (int version = gradwire::wire::kOldestWireVersion; version <= gradwire::kWireVersion; ++version) {
    add_missing(fs::path(argv[1]) / ("version" + std::to_string(version)), version);
  }
  return 0;
}
