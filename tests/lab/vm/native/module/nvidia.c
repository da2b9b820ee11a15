// The driver's core as far as device numbers go: the three names that the real one has on its fixed major.
#include <linux/fs.h>
#include <linux/module.h>

#define MAJOR_NVIDIA 195

static const struct {
	const char *name;
	unsigned int first, count;
} ranges[] = { { "nvidia", 0, 254 }, { "nvidia-modeset", 254, 1 }, { "nvidiactl", 255, 1 } };

static int opened(struct inode *inode, struct file *file) { return 0; }

static const struct file_operations operations = { .owner = THIS_MODULE, .open = opened };

static void release(int count)
{
	while (count--)
		__unregister_chrdev(MAJOR_NVIDIA, ranges[count].first, ranges[count].count, ranges[count].name);
}

static int __init begin(void)
{
	int i, error;

	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		error = __register_chrdev(MAJOR_NVIDIA, ranges[i].first, ranges[i].count, ranges[i].name, &operations);
		if (error < 0) {
			release(i);
			return error;
		}
	}
	return 0;
}

static void __exit end(void) { release(ARRAY_SIZE(ranges)); }

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("lab: plays the NVIDIA driver's device numbers");
MODULE_VERSION(LAB_DRIVER_VERSION);
