#include <cstring>
#include <string_view>
#include <vector>

#include "bind/bind.h"
#include "text/merges.h"

namespace pyrt::bind {
namespace {

// Strings of GGUF, each a length of 64 bits and its bytes: where each begins, and where the last ends. Nothing is read
// beyond the buffer: -1 for the end if they do not all lie within it.
py::tuple string_offsets(const py::buffer& file, int64_t pos, int64_t count) {
  const py::buffer_info bytes = file.request();
  const int64_t size = bytes.size * bytes.itemsize;
  PYRT_CHECK(0 <= pos && pos <= size && 0 <= count && count <= (size - pos) / 8, count, " strings cannot stand at ", pos, " of ",
             size, " bytes");
  py::array_t<int64_t> offsets{py::ssize_t(count)};
  const uint8_t* data = static_cast<const uint8_t*>(bytes.ptr);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t length;
    if (size - pos < 8) return py::make_tuple(offsets, -1);
    std::memcpy(&length, data + pos, 8);
    if (length > uint64_t(size - pos - 8)) return py::make_tuple(offsets, -1);
    offsets.mutable_data()[i] = pos;
    pos += 8 + int64_t(length);
  }
  return py::make_tuple(offsets, pos);
}

py::object owned(PyObject* object) {
  if (!object) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::list strings(const py::buffer& file, const Array<int64_t>& offsets) {
  const py::buffer_info bytes = file.request();
  const int64_t size = bytes.size * bytes.itemsize;
  const char* data = static_cast<const char*>(bytes.ptr);
  py::list all(offsets.size());
  for (py::ssize_t i = 0; i < offsets.size(); ++i) {
    const int64_t pos = offsets.data()[i];
    uint64_t length = 0;
    const bool begins = 0 <= pos && pos <= size - 8;
    if (begins) std::memcpy(&length, data + pos, 8);
    PYRT_CHECK(begins && length <= uint64_t(size - pos - 8), "no string stands at ", pos, " of ", size, " bytes");
    all[size_t(i)] = owned(PyUnicode_DecodeUTF8(data + pos + 8, py::ssize_t(length), "strict"));
  }
  return all;
}

// The strings of a list, in characters.
class Texts {
 public:
  explicit Texts(const py::list& strings) {
    std::vector<size_t> ends;
    for (const py::handle string : strings) {
      if (!PyUnicode_Check(string.ptr())) throw py::type_error("a list of strings holds something else");
      const int kind = PyUnicode_KIND(string.ptr());
      const void* data = PyUnicode_DATA(string.ptr());
      for (py::ssize_t i = 0; i < PyUnicode_GET_LENGTH(string.ptr()); ++i) all_.push_back(PyUnicode_READ(kind, data, i));
      ends.push_back(all_.size());
    }
    for (size_t i = 0, begin = 0; i < ends.size(); begin = ends[i++])
      views_.push_back(std::u32string_view(all_).substr(begin, ends[i] - begin));
  }
  Texts(const Texts&) = delete;

  std::span<const std::u32string_view> views() const { return views_; }

 private:
  std::u32string all_;
  std::vector<std::u32string_view> views_;
};

py::list pairs(const std::vector<Merge>& merges, const py::list& pieces) {
  py::list all(merges.size());
  for (size_t i = 0; i < merges.size(); ++i)
    all[i] = owned(PyTuple_Pack(2, pieces[size_t(merges[i].left)].ptr(), pieces[size_t(merges[i].right)].ptr()));
  return all;
}

py::list piece_merges(const py::list& pieces) {
  const Texts texts(pieces);
  std::vector<Merge> found;
  {
    const WithoutGil without_gil;
    found = merges_of(texts.views());
  }
  return pairs(found, pieces);
}

py::list listed_merges(const py::list& pieces, const py::list& rules) {
  const Texts texts(pieces), rule_texts(rules);
  return pairs(merges_listed(texts.views(), rule_texts.views()), pieces);
}

}  // namespace

void bind_text(py::module_& m) {
  m.def("string_offsets", string_offsets, py::arg("file"), py::arg("start"), py::arg("count"),
        "Where each of `count` strings of GGUF from `start` on begins, and where the last ends (-1: beyond the file).");
  m.def("strings", strings, py::arg("file"), py::arg("offsets"), "The strings of GGUF that begin there; UnicodeDecodeError.");
  m.def("piece_merges", piece_merges, py::arg("pieces"), "Rules (left, right) that make pieces which are joined best first.");
  m.def("listed_merges", listed_merges, py::arg("pieces"), py::arg("rules"),
        "Rules (left, right) listed as \"left right\"; ends before the first that is no two pieces or does not make one.");
}

}  // namespace pyrt::bind
