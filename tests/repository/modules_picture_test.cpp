// Tests that docs/pictures/modules.svg is drawn from the table of layers. WRITE=1 repository_test
// --gtest_filter='Modules*' draws it again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "repository/layering.hpp"
#include "tests/support/committed_file.hpp"

namespace gradwire::repository {
namespace {

using Names = std::set<std::string_view>;

struct Module {
  std::string_view says;  // description in a few words
  int floor = 0;          // one above the highest module that it uses
  double x = 0;           // middle of its box
};

constexpr double kWidth = 960, kBoxWidth = 138, kBoxHeight = 40, kFloorHeight = 68, kMargin = 16;

const std::map<std::string_view, std::string_view>& descriptions() {
  static const std::map<std::string_view, std::string_view> all = {
      {"api", "the C API"},
      {"base", "errors, units, log"},
      {"choice", "choices by measurement"},
      {"cli", "the tool gradwire"},
      {"codec", "values as frames"},
      {"drop_in", "what drop-ins share"},
      {"elastic", "ranks that end or come"},
      {"emulation", "slower links"},
      {"exchange", "one collective call"},
      {"export_http", "the HTTP server"},
      {"kernels", "codecs: CPU and GPU"},
      {"membership", "who takes part"},
      {"memory", "frame buffers"},
      {"observe", "events, statistics"},
      {"plan", "buckets, plans of calls"},
      {"plot", "plots of benchmarks"},
      {"plugins", "MPI, NCCL, PyTorch"},
      {"policy", "the policy file"},
      {"record", "gradients in files"},
      {"security", "keys, sealed messages"},
      {"security_openssl", "cryptography"},
      {"session", "steps of a training"},
      {"table", "embedding rows"},
      {"transport", "bytes between ranks"},
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

/// Returns the modules that a layer uses, without those that these use themselves.
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

std::map<std::string_view, Module> make_modules() {
  std::map<std::string_view, Module> modules;
  std::map<int, std::vector<std::string_view>> floors;
  for (const Layer& layer : kLayers) {  // each layer comes after those that it uses
    Module& module = modules[layer.name];
    for (const std::string_view below : layer.below) {
      module.floor = std::max(module.floor, modules.at(below).floor + 1);
    }
    floors[module.floor].push_back(layer.name);
    const auto said = descriptions().find(layer.name);
    EXPECT_NE(said, descriptions().end()) << layer.name << " has no description in this file";
    module.says = said == descriptions().end() ? "" : said->second;
  }
  for (const auto& [floor, names] : floors) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      modules.at(names[i]).x = kWidth * static_cast<double>(2 * i + 1) / static_cast<double>(2 * names.size());
    }
  }
  return modules;
}

std::string draw() {
  const std::map<std::string_view, Module> modules = make_modules();
  int top = 0;
  for (const auto& [name, module] : modules) {
    top = std::max(top, module.floor);
  }
  const double height = 2 * kMargin + kFloorHeight * top + kBoxHeight;
  const auto y_of = [&](const Module& module) { return kMargin + kFloorHeight * (top - module.floor); };
  std::ostringstream svg;
  svg << R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 )" << kWidth << " " << height
      << R"(" font-family="sans-serif" font-size="13" text-anchor="middle">)"
      << "\n<title>Modules of gradwire: each uses those that its lines lead down to</title>\n"
      << R"(<rect width="100%" height="100%" fill="white"/>)"
      << "\n";
  for (const Layer& layer : kLayers) {
    const Module& from = modules.at(layer.name);
    for (const std::string_view below : supports_of(layer)) {
      const Module& to = modules.at(below);
      svg << R"(<line x1=")" << from.x << R"(" y1=")" << y_of(from) + kBoxHeight << R"(" x2=")" << to.x << R"(" y2=")"
          << y_of(to) << R"(" stroke="#9aa5b1"/>)"
          << "\n";
    }
  }
  for (const Layer& layer : kLayers) {
    const Module& module = modules.at(layer.name);
    const double y = y_of(module);
    svg << R"(<rect x=")" << module.x - kBoxWidth / 2 << R"(" y=")" << y << R"(" width=")" << kBoxWidth
        << R"(" height=")" << kBoxHeight << R"(" rx="4" fill="#eef3f8" stroke="#52708f"/>)"
        << R"(<text x=")" << module.x << R"(" y=")" << y + 17 << R"(" font-weight="bold">)" << layer.name
        << R"(</text><text x=")" << module.x << R"(" y=")" << y + 33 << R"(" font-size="11">)" << module.says
        << "</text>\n";
  }
  svg << "</svg>\n";
  return svg.str();
}

TEST(Modules, ThePictureIsThatOfTheTable) { EXPECT_TRUE(test::is_committed("docs/pictures/modules.svg", draw())); }

}  // namespace
}  // namespace gradwire::repository
