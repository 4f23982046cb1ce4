#include "repository/layering.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace gradwire::repository {
namespace {

bool matches(const std::vector<std::string_view>& globs, const std::string& text) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](std::string_view glob) { return fnmatch(std::string(glob).c_str(), text.c_str(), 0) == 0; });
}

const Layer* find_layer(std::string_view name, const std::vector<Layer>& layers = kLayers) {
  const auto it = std::find_if(layers.begin(), layers.end(), [&](const Layer& layer) { return layer.name == name; });
  return it == layers.end() ? nullptr : &*it;
}

const Layer* layer_of_public_header(std::string_view stem) {
  const auto it = std::find_if(kLayers.begin(), kLayers.end(), [&](const Layer& layer) {
    return std::find(layer.public_headers.begin(), layer.public_headers.end(), stem) != layer.public_headers.end();
  });
  return it == kLayers.end() ? nullptr : &*it;
}

/// Returns the layer of an include: "gradwire/dtype.hpp" -> base, "codec/codec.hpp" -> codec; null for other headers.
const Layer* layer_of_include(const std::string& include) {
  const std::filesystem::path path(include);
  if (!path.has_parent_path()) {
    return nullptr;
  }
  const std::string folder = path.begin()->string();
  if (path.parent_path() == "plugins/security_openssl") {
    return find_layer("security_openssl");
  }
  return folder == "gradwire" ? layer_of_public_header(path.stem().string()) : find_layer(folder);
}

/// Returns the layer that a file of the repository belongs to; null if its folder is not in the table.
const Layer* layer_of_file(const std::string& path) {
  const std::filesystem::path file(path);
  auto part = file.begin();
  const std::string top = part->string();
  if (path.starts_with("include/gradwire/replace/")) {
    return find_layer("plugins");
  }
  if (path.starts_with("plugins/export_http/")) {
    return find_layer("export_http");  // the server of metrics, which is no drop-in
  }
  if (path.starts_with("plugins/security_openssl/")) {
    return find_layer("security_openssl");
  }
  if (top == "include") {
    return layer_of_public_header(file.stem().string());
  }
  return find_layer(top == "src" ? (++part)->string() : top);
}

void add_below(const Layer& layer, std::set<std::string_view>& names, const std::vector<Layer>& layers = kLayers) {
  for (const std::string_view name : layer.below) {
    if (names.insert(name).second) {
      add_below(*find_layer(name, layers), names, layers);
    }
  }
}

/// Calls `judge` with each include of the text, and returns the problems.
template <typename Judge>
std::vector<std::string> judge_includes(const std::string& path, std::string_view text, Judge&& judge) {
  static const std::regex kInclude(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"].*)");
  std::vector<std::string> violations;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::smatch match;
    if (!std::regex_match(line, match, kInclude)) {
      continue;
    }
    if (const std::string problem = judge(match[1].str()); !problem.empty()) {
      violations.push_back(path + ":" + std::to_string(number) + ": " + match[1].str() + ": " + problem);
    }
  }
  return violations;
}

/// Returns the folders below session: "src/session/parts/scales/scale_comparison.cpp", "src" -> "parts" and "scales";
/// empty if there is none. `top` is the path before session.
std::pair<std::string, std::string> session_folders(const std::string& path, std::string_view top) {
  const std::filesystem::path folder = std::filesystem::path(path.substr(top.size())).parent_path();
  std::vector<std::string> names(folder.begin(), folder.end());
  names.resize(3);
  return {names[1], names[2]};
}

/// Returns the problem with one include of a file of `layer`; empty if there is none.
std::string judge(const Layer& layer, const std::string& path, const std::string& include) {
  for (const OutsideLibrary& library : kOutsideLibraries) {
    if (matches(library.headers, include)) {
      return matches(library.files, path) ? "" : "headers of " + std::string(library.name) + " do not belong here";
    }
  }
  if (include.find_first_of("./") == std::string::npos) {
    return "";  // the standard library
  }
  const Layer* target = layer_of_include(include);
  if (target == nullptr) {
    return "neither a module (write the path from src/ or include/) nor an outside library of the table";
  }
  if (path.starts_with("include/") && !include.starts_with("gradwire/")) {
    return "a public header includes public headers only";
  }
  std::set<std::string_view> allowed = {layer.name};
  add_below(layer, allowed);
  if (!allowed.contains(target->name)) {
    return std::string(layer.name) + " may not include " + std::string(target->name);
  }
  return "";
}

}  // namespace

std::vector<std::string> find_violations(const std::string& path, std::string_view text) {
  const Layer* layer = layer_of_file(path);
  if (layer == nullptr) {
    return {path + ": no row of the table of layers covers this file"};
  }
  return judge_includes(path, text, [&](const std::string& include) { return judge(*layer, path, include); });
}

std::vector<std::string> find_session_violations(const std::string& path, std::string_view text) {
  const auto [folder, part] = session_folders(path, "src/");
  const Layer* layer = find_layer(folder, kSessionFolders);
  if (layer == nullptr) {
    return {path + ": no row of the table of session's folders covers this file"};
  }
  std::set<std::string_view> allowed = {layer->name};
  add_below(*layer, allowed, kSessionFolders);
  return judge_includes(path, text, [&, folder = folder, part = part](const std::string& include) -> std::string {
    if (!include.starts_with("session/")) {
      return "";
    }
    const auto [target, other] = session_folders(include, "");
    if (!allowed.contains(target)) {
      return folder + " may not include " + target;
    }
    return folder == "parts" && target == "parts" && part != other ? "part " + part + " may not include part " + other
                                                                   : "";
  });
}

std::vector<std::string> library_files(const std::filesystem::path& repository) {
  static const std::set<std::string> kExtensions = {".hpp", ".cpp", ".h", ".cu", ".cuh", ".inc", ".ipp"};
  std::vector<std::string> files;
  for (const char* folder : {"include", "src", "kernels", "plugins"}) {
    if (!std::filesystem::exists(repository / folder)) {
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(repository / folder)) {
      if (entry.is_regular_file() && kExtensions.contains(entry.path().extension().string())) {
        files.push_back(entry.path().lexically_relative(repository).string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    throw std::runtime_error("cannot read " + file.string());
  }
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace gradwire::repository
