// docs/pictures/rooms.svg is drawn from the table of layers: WRITE=1 repository_test --gtest_filter='Rooms*' draws it
// anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "repository/layering.hpp"

namespace gradwire::repository {
namespace {

using Names = std::set<std::string_view>;

struct Room {
  std::string_view says;  // in a few words
  int floor = 0;          // one above the highest room that it stands on
  double x = 0;           // of its middle
};

constexpr double kWidth = 960, kRoomWidth = 138, kRoomHeight = 40, kFloorHeight = 68, kMargin = 16;

const std::map<std::string_view, std::string_view>& descriptions() {
  static const std::map<std::string_view, std::string_view> all = {
      {"api", "the C API"},
      {"base", "errors, units, log"},
      {"cli", "the tool gradwire"},
      {"codec", "values as frames"},
      {"drop_in", "what drop-ins share"},
      {"elastic", "ranks that end or come"},
      {"emulation", "slower links"},
      {"exchange", "one collective call"},
      {"export", "metrics, histories"},
      {"kernels", "codecs: CPU and GPU"},
      {"membership", "who takes part"},
      {"memory", "frame buffers"},
      {"mpi_link", "the link of an MPI job"},
      {"observe", "events, statistics"},
      {"plan", "buckets, plans of calls"},
      {"plot", "plots of benchmarks"},
      {"plugins", "MPI, NCCL, PyTorch"},
      {"policy", "the policy file"},
      {"session", "steps of a training"},
      {"table", "embedding rows"},
      {"transport", "bytes between ranks"},
      {"tuning", "choices of auto"},
      {"watch", "metrics, histories"},
      {"wire", "frame layout"},
  };
  return all;
}

const Layer& layer_of(std::string_view name) {
  return *std::find_if(kLayers.begin(), kLayers.end(), [=](const Layer& layer) { return layer.name == name; });
}

void add_all_below(std::string_view name, Names& names) {
  for (const std::string_view below : layer_of(name).below) {
    names.insert(below);
    add_all_below(below, names);
  }
}

/// What it stands on, but for what that stands on itself.
Names supports_of(const Layer& layer) {
  Names supports(layer.below.begin(), layer.below.end());
  for (const std::string_view below : layer.below) {
    Names deeper;
    add_all_below(below, deeper);
    for (const std::string_view name : deeper) {
      supports.erase(name);
    }
  }
  return supports;
}

std::map<std::string_view, Room> make_rooms() {
  std::map<std::string_view, Room> rooms;
  std::map<int, std::vector<std::string_view>> floors;
  for (const Layer& layer : kLayers) {  // each comes after those that it stands on
    Room& room = rooms[layer.name];
    for (const std::string_view below : layer.below) {
      room.floor = std::max(room.floor, rooms.at(below).floor + 1);
    }
    floors[room.floor].push_back(layer.name);
    const auto said = descriptions().find(layer.name);
    EXPECT_NE(said, descriptions().end()) << layer.name << " has no description in this file";
    room.says = said == descriptions().end() ? "" : said->second;
  }
  for (const auto& [floor, names] : floors) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      rooms.at(names[i]).x = kWidth * static_cast<double>(2 * i + 1) / static_cast<double>(2 * names.size());
    }
  }
  return rooms;
}

std::string draw() {
  const std::map<std::string_view, Room> rooms = make_rooms();
  int top = 0;
  for (const auto& [name, room] : rooms) {
    top = std::max(top, room.floor);
  }
  const double height = 2 * kMargin + kFloorHeight * top + kRoomHeight;
  const auto y_of = [&](const Room& room) { return kMargin + kFloorHeight * (top - room.floor); };
  std::ostringstream svg;
  svg << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" << kWidth << " " << height
      << R"(" font-family="sans-serif" font-size="13" text-anchor="middle">)"
      << "\n<title>Rooms of gradwire: each stands on those that lines lead down to</title>\n"
      << R"(<rect width="100%" height="100%" fill="white"/>)"
      << "\n";
  for (const Layer& layer : kLayers) {
    const Room& from = rooms.at(layer.name);
    for (const std::string_view below : supports_of(layer)) {
      const Room& to = rooms.at(below);
      svg << R"(<line x1=")" << from.x << R"(" y1=")" << y_of(from) + kRoomHeight << R"(" x2=")" << to.x << R"(" y2=")"
          << y_of(to) << R"(" stroke="#9aa5b1"/>)"
          << "\n";
    }
  }
  for (const Layer& layer : kLayers) {
    const Room& room = rooms.at(layer.name);
    const double y = y_of(room);
    svg << R"(<rect x=")" << room.x - kRoomWidth / 2 << R"(" y=")" << y << R"(" width=")" << kRoomWidth
        << R"(" height=")" << kRoomHeight << R"(" rx="4" fill="#eef3f8" stroke="#52708f"/>)"
        << R"(<text x=")" << room.x << R"(" y=")" << y + 17 << R"(" font-weight="bold">)" << layer.name
        << R"(</text><text x=")" << room.x << R"(" y=")" << y + 33 << R"(" font-size="11">)" << room.says
        << "</text>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

TEST(Rooms, ThePictureIsThatOfTheTable) {
  const std::filesystem::path path = kRepository / "docs/pictures/rooms.svg";
  const std::string drawn = draw();
  if (std::getenv("WRITE") != nullptr) {
    std::ofstream(path) << drawn;
  }
  std::ifstream file(path);
  EXPECT_TRUE(drawn == std::string(std::istreambuf_iterator<char>(file), {}))
      << "docs/pictures/rooms.svg is not drawn from the table; run WRITE=1 repository_test --gtest_filter='Rooms*'";
}

}  // namespace
}  // namespace gradwire::repository
