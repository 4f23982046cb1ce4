// golden_frames FOLDER: adds what is missing to the folder of tests/golden for the version that this build writes.
// Frames that are there are left alone: they are the format.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "golden_frames.hpp"
#include "gradwire/version.hpp"

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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: golden_frames FOLDER\n";
    return 2;
  }
  const fs::path folder = fs::path(argv[1]) / ("version" + std::to_string(gradwire::kWireVersion));
  fs::create_directories(folder / "good");
  fs::create_directories(folder / "bad");
  const auto good = gradwire::test::good_frames();
  std::ofstream manifest(folder / "manifest.txt");
  for (const auto& golden : good) {
    save(folder / "good" / (golden.name + ".frame"), golden.frame);
    manifest << manifest_line(golden) << '\n';
  }
  for (const auto& bad : bad_frames(good.front())) {
    save(folder / "bad" / (bad.name + ".frame"), bad.frame);
  }
  return 0;
}
