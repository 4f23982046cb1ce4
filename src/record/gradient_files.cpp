#include "record/gradient_files.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.hpp"
#include "gradwire/error.hpp"
#include "record/gradient_folder.hpp"
#include "record/npy.hpp"
#include "record/safetensors.hpp"

namespace gradwire::record {
namespace {

constexpr std::uint32_t kMostNameBytes = 4096;
constexpr std::size_t kFirstBytes = 9;  // enough to tell the formats apart

std::vector<StoredGradient> list_dump(GradientFile& file) {
  std::vector<StoredGradient> found;
  for (std::uint64_t at = kDumpMagic.size(); at < file.size();) {
    const std::string place = "record " + std::to_string(found.size());
    StoredGradient one;
    one.file = file.path();
    const auto name_bytes = file.number<std::uint32_t>(at, place);
    at += sizeof name_bytes;
    if (name_bytes > kMostNameBytes) {
      file.refuse(place,
                  "has a name of " + std::to_string(name_bytes) + " bytes; the file is damaged, record it again");
    }
    one.name.resize(name_bytes);
    file.read(at, one.name.data(), name_bytes, place);
    at += name_bytes;
    const auto step = file.number<std::uint32_t>(at, place);
    one.step = step;
    at += sizeof step;
    one.count = file.number<std::uint64_t>(at, place);
    at += sizeof one.count;
    one.offset = at;
    if (one.count > (file.size() - at) / sizeof(float)) {
      file.refuse(place + ", tensor " + text::quote(one.name),
                  "claims " + std::to_string(one.count) + " values, more than the file holds; record it again");
    }
    one.shape = {one.count};
    at += one.count * sizeof(float);
    found.push_back(std::move(one));
  }
  return found;
}

StoredGradient list_raw(const GradientFile& file, DType dtype) {
  const std::size_t bytes = element_bytes(dtype);
  if (file.size() % bytes != 0) {
    file.refuse("", "has " + std::to_string(file.size()) + " bytes, no multiple of the " + std::to_string(bytes) +
                        " of a " + std::string(to_string(dtype)) + "; is --dtype right?");
  }
  return {.name = file.path().filename().string(),
          .dtype = dtype,
          .shape = {file.size() / bytes},
          .count = file.size() / bytes,
          .file = file.path()};
}

}  // namespace

void GradientFile::refuse(std::string_view place, std::string_view what) const {
  throw Error(ErrorCode::invalid_argument,
              path_.string() + ": " + (place.empty() ? std::string() : std::string(place) + ": ") + std::string(what));
}

void GradientFile::read(std::uint64_t offset, void* to, std::size_t bytes, std::string_view part) {
  if (offset > size() || bytes > size() - offset) {
    refuse(part, "the file ends here, after " + std::to_string(size()) + " bytes; it is cut off, write it again");
  }
  file_.seek(offset);
  if (file_.read(to, bytes) != bytes) {
    refuse(part, "the file became shorter while it was read; write it again");
  }
}

std::uint64_t elements_of(const GradientFile& file, std::string_view place, const std::vector<std::uint64_t>& shape,
                          DType dtype) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) {
    return 0;
  }
  const std::uint64_t most = file.size() / element_bytes(dtype);
  std::uint64_t count = 1;
  for (const std::uint64_t side : shape) {
    if (side > most / count) {
      file.refuse(place,
                  "its shape has more elements than the file holds; the file is cut off or damaged, write it "
                  "again");
    }
    count *= side;
  }
  return count;
}

Listing list_file(const std::filesystem::path& path, std::optional<DType> raw) {
  GradientFile file(path);
  std::array<char, kFirstBytes> bytes{};
  const auto known = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), bytes.size()));
  file.read(0, bytes.data(), known, "the first bytes");
  const std::string_view first(bytes.data(), known);
  const std::string extension = path.extension().string();
  Listing listing;
  if (first.starts_with(kNpyMagic) || extension == ".npy") {
    listing.gradients.push_back(list_npy(file));
  } else if (first.starts_with(kDumpMagic)) {
    listing.gradients = list_dump(file);
  } else if (extension == ".safetensors" || (!raw && known == kFirstBytes && first.back() == '{')) {
    listing.gradients = list_safetensors(file, listing.left_out);
  } else if (first.starts_with("PK\x03\x04")) {
    file.refuse("",
                "is a zip file, such as .npz or what torch.save writes; save each array with numpy.save, or all of "
                "them with safetensors");
  } else if (raw) {
    listing.gradients.push_back(list_raw(file, *raw));
  } else {
    file.refuse("",
                "is neither .npy nor safetensors nor a file of char_lm; for raw elements name their type: --dtype "
                "f32");
  }
  return listing;
}

Listing list_gradients(const std::filesystem::path& path, std::optional<DType> raw) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? list_folder(path, raw) : list_file(path, raw);
}

void GradientValues::read(std::uint64_t first, std::uint64_t count, void* to) {
  const std::size_t each = element_bytes(gradient_.dtype);
  file_.read(gradient_.offset + first * each, to, count * each, "tensor " + text::quote(gradient_.name));
}

}  // namespace gradwire::record
