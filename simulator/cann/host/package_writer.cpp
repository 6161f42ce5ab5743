#include "cann/host/package_writer.h"

#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "cann/host/cann_types.h"
#include "cann/host/kernel_file.h"
#include "cann/host/kernel_names.h"
#include "src/json.h"
#include "src/profile.h"

namespace simulated_cann {
namespace {

using ascend_sim::Json;

constexpr int kVectorCore = 2;  // asc-tools ascendc_ops_config.py, core_type_map
constexpr const char* kKernels = "/op_impl/ai_core/tbe/kernel/";

uint32_t rotated(uint32_t x, int by) { return x >> by | x << (32 - by); }

// SHA-256 in hexadecimal (FIPS 180-4). Its constants are the fractions of roots of the first primes.
std::string sha256(std::string bytes) {
    std::array<uint32_t, 64> k;
    std::array<uint32_t, 8> h;
    auto fraction = [](long double root) {
        return static_cast<uint32_t>((root - static_cast<uint32_t>(root)) * 4294967296.0L);
    };
    size_t found = 0;
    for (uint32_t p = 2; found < k.size(); ++p) {
        bool is_prime = true;
        for (uint32_t d = 2; d * d <= p; ++d) is_prime = is_prime && p % d != 0;
        if (!is_prime) continue;
        if (found < h.size()) h[found] = fraction(std::sqrt(static_cast<long double>(p)));
        k[found++] = fraction(std::cbrt(static_cast<long double>(p)));
    }
    const uint64_t bits = bytes.size() * 8;
    bytes += '\x80';
    while (bytes.size() % 64 != 56) bytes += '\0';
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);
    for (size_t block = 0; block < bytes.size(); block += 64) {
        std::array<uint32_t, 64> w;
        for (size_t i = 0; i < 64; ++i) {
            if (i < 16) {
                w[i] = 0;
                for (size_t b = 0; b < 4; ++b) w[i] = w[i] << 8 | static_cast<uint8_t>(bytes[block + 4 * i + b]);
                continue;
            }
            const uint32_t s0 = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
            const uint32_t s1 = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        std::array<uint32_t, 8> v = h;
        for (size_t i = 0; i < 64; ++i) {
            const uint32_t s1 = rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25);
            const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
            const uint32_t s0 = rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22);
            const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            for (size_t j = 7; j > 0; --j) v[j] = v[j - 1];
            v[4] += t1;
            v[0] = t1 + t2;
        }
        for (size_t j = 0; j < 8; ++j) h[j] += v[j];
    }
    std::string text;
    for (uint32_t word : h) {
        char hex[9];
        std::snprintf(hex, sizeof hex, "%08x", word);
        text += hex;
    }
    return text;
}

}  // namespace

void write_file(const std::string& path, const std::string& text) {
    if (std::ifstream old(path, std::ios::binary); old)
        if (std::string(std::istreambuf_iterator<char>(old), {}) == text) return;
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw std::runtime_error("cannot write " + path);
}

std::string write_kernels(const std::string& package, const OpRecord& def) {
    const std::string subfolder = def.soc + "/" + snake_case(def.type) + "/", folder = package + kKernels + subfolder;
    std::filesystem::create_directories(folder);
    std::vector<std::string> entries;
    for (size_t column = 0; column < def.columns(); ++column) {
        const std::string name = def.type + "_" + column_name(def, column), entry = kernel_entry(def, column);
        const std::string object = kernel_object(entry), keys = "[\"" + simplified_key(def, column) + "\"]";
        write_file(folder + name + ".o", object);
        Json description;
        description.field("binFileName", name).field("binFileSuffix", ".o").field("kernelName", entry);
        description.field("coreType", "VectorCore").field("sha256", sha256(object));
        description.raw("supportInfo", Json().raw("simplifiedKey", keys).done());
        write_file(folder + name + ".json", description.done() + "\n");
        Json listed;
        listed.raw("coreType", std::to_string(kVectorCore)).raw("simplifiedKey", keys);
        listed.field("binPath", subfolder + name + ".o").field("jsonPath", subfolder + name + ".json");
        entries.push_back(listed.done());
    }
    return Json().raw("binaryList", ascend_sim::json_list(entries)).done();
}

void add_kernels_to_source(const OpRecord& def, std::string* source) {
    const std::string kernel = snake_case(def.type);
    if (source->empty())
        *source = "#define __CCE_AICORE__ " + std::to_string(ascend_sim::find_profile(def.soc.c_str())->arch) +
                  "\n#include \"tiling_prelude.h\"\n";
    for (size_t column = 0; column < def.columns(); ++column) {
        std::string defines, undefs;
        auto define = [&](const std::string& name, const std::string& value) {
            defines += "#define " + name + " " + value + "\n";
            undefs += "#undef " + name + "\n";
        };
        define(kernel, kernel_entry(def, column));
        for (const ParamRecord* p : distinct_parameters(def)) {
            std::string name;
            for (char c : p->name) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
            const TypeRow* row = find_type(p->types.at(column));  // not null: op_build refuses other types
            define("DTYPE_" + name, row->kernel);
            define("ORIG_DTYPE_" + name, row->macro);
        }
        const std::string compile = "\n" + defines + "#include \"" + kernel + ".cpp\"\n" + undefs;
        if (source->find(compile) == std::string::npos) *source += compile;
    }
}

void write_kernel_list(const std::string& package, const std::string& soc, const std::string& list) {
    const std::string folder = package + kKernels + "config/" + soc;
    std::filesystem::create_directories(folder);
    write_file(folder + "/binary_info_config.json", list + "\n");
}

}  // namespace simulated_cann
