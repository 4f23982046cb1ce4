// The tool, with gradients in its folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cli/tool.hpp"
#include "tests/record/gradient_bytes.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::test {

inline std::vector<float> gaussian(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

class GradientTool : public ToolTest {
 protected:
  void write_npy(const std::string& name, const std::vector<float>& values) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_bytes(folder_ / name, npy(1, npy_dict("<f4", "(" + std::to_string(values.size()) + ",)"), bytes_of(values)));
  }
  [[nodiscard]] nlohmann::json rows(const std::string& arguments) const {
    const Outcome outcome = gradwire("ratio " + arguments + " --json out.json");
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    return nlohmann::json::parse(read_text(folder_ / "out.json"));
  }
};

}  // namespace gradwire::test
