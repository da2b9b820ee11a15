// nvidia-uvm as far as its device number goes. The real one takes what the kernel has free at this boot; here the
// lab says which that is, so that a test knows it beforehand.
#include <linux/fs.h>
#include <linux/module.h>

static int lab_major = 511;
module_param(lab_major, int, 0444);

static int opened(struct inode *inode, struct file *file) { return 0; }

static const struct file_operations operations = { .owner = THIS_MODULE, .open = opened };

static int __init begin(void)
{
	int error = register_chrdev(lab_major, "nvidia-uvm", &operations);

	return error < 0 ? error : 0;
}

static void __exit end(void) { unregister_chrdev(lab_major, "nvidia-uvm"); }

module_init(begin);
module_exit(end);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("lab: plays nvidia-uvm's device number");
MODULE_VERSION(LAB_DRIVER_VERSION);
